"""How the page about a fit looks: on any screen, light or dark, and in print."""

STYLE = """
:root { color-scheme: light dark; --text: #1d2733; --quiet: #56616e; --line: #8a96a3; --rule: #e3e8ee; --paper: #ffffff;
  --panel: #f5f7fa; --ink: #1f4e79; --shade: #9db8d2; --good: #1e6b3f; --doubt: #8a5200; --bad: #a3201a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaef; --quiet: #a9b4c0; --line: #76828f; --rule: #2e3742;
  --paper: #14191f; --panel: #1c232b; --ink: #8ec1ee; --shade: #3f658a; --good: #6fcf97; --doubt: #f0b35c;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--paper); margin: 0; }
main { max-width: 70rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: .4rem 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } p { margin: .5rem 0; max-width: 44rem; } .quiet { color: var(--quiet); }
ul { padding-left: 1.2rem; max-width: 44rem; } code, pre { font: .88em/1.5 ui-monospace, monospace; }
pre { background: var(--panel); padding: .7rem .9rem; border-radius: .4rem; white-space: pre-wrap; }
.halves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 3rem; }
.halves > * { min-width: 0; container-type: inline-size; } .verdicts { gap: .7rem 1rem; margin: .8rem 0; }
.verdict { background: var(--panel); border-left: .35rem solid var(--quiet); border-radius: .3rem;
  padding: .6rem .9rem; }
.verdict p { margin: 0; } .verdict ul { margin: .3rem 0 0; font-size: .92em; }
.good { border-color: var(--good); } .doubt { border-color: var(--doubt); } .bad { border-color: var(--bad); }
.good b { color: var(--good); } .doubt b { color: var(--doubt); } .bad b { color: var(--bad); }
.mathematics { font: 1.02em/1.9 Cambria, "STIX Two Text", Georgia, serif; background: var(--panel);
  padding: .3rem .9rem; border-radius: .4rem; } .mathematics p { max-width: none; margin: .2rem 0; }
.mathematics sub, .mathematics sup { font-size: .72em; line-height: 0; white-space: nowrap; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .25rem 0 .25rem 1rem; text-align: right; }
th:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere; min-width: 7rem; }
tbody th { font-weight: 600; }
thead th { color: var(--quiet); font-weight: 500; } tbody tr { border-top: 1px solid var(--rule); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 2rem; }
.pictures > * { max-width: 36rem; } figure { margin: .6rem 0; min-width: 0; }
figure svg { width: 100%; height: auto; font-family: system-ui, sans-serif; }
svg text { fill: var(--text); }
figcaption { color: var(--quiet); font-size: .88em; max-width: 36rem; }
details { margin-top: 2rem; border-top: 1px solid var(--rule); padding-top: .7rem; }
summary { font-weight: 600; cursor: pointer; } summary h2 { display: inline; }
footer { color: var(--quiet); font-size: .88em; margin-top: 2.5rem; }
section, details { container-type: inline-size; }
.folded thead, .folded tbody { display: block; } .folded { width: 100%; }
.folded tr { display: grid; grid-template-columns: repeat(var(--columns), 1fr); }
.folded thead th:first-child { display: none; } .folded tbody th { grid-column: 1 / -1; padding-bottom: 0; }
.folded td, .folded thead th { padding-left: .3rem; }
@container (max-width: 27rem) { .wide thead { display: block; } .wide tbody { display: block; } .wide { width: 100%; }
  .wide tr { display: grid; grid-template-columns: repeat(var(--columns), 1fr); }
  .wide thead th:first-child { display: none; }
  .wide tbody th { grid-column: 1 / -1; padding-bottom: 0; } .wide td, .wide thead th { padding-left: .3rem; } }
@media print { :root { color-scheme: light; --text: #000; --quiet: #444; --line: #777; --rule: #ccc; --paper: #fff;
  --panel: #fff; --ink: #1f4e79; --shade: #9db8d2; } body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  .pictures { grid-template-columns: 1fr 1fr; }
  figure, .verdict, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; } }
"""
