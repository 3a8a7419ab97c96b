// What the theme leaves out for readers who listen or use the keyboard: names of regions, and focus where one can scroll.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, at) => nav.setAttribute("aria-label", `Code ${at + 1}`));
  const reachable = () =>
    document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .md-sidebar__scrollwrap").forEach((part) => {
      if (part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight) part.tabIndex = 0;
    });
  reachable();
  addEventListener("load", () => setTimeout(reachable, 50));
  addEventListener("resize", reachable);
});
