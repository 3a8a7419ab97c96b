# glmmTMB or lme4 in a process of its own: Rscript peers_glmm.R TOOL THREADS
# Commands come as lines of words separated by tabs; replies go out as "@" and one line of JSON.

arguments <- commandArgs(trailingOnly = TRUE)
tool <- arguments[1]
threads <- as.integer(arguments[2])
data <- NULL
fit <- NULL

json <- function(x) {
  if (is.list(x)) {
    fields <- paste0(encodeString(names(x), quote = '"'), ":", vapply(x, json, ""))
    return(paste0("{", paste(fields, collapse = ","), "}"))
  }
  items <- if (is.character(x)) encodeString(x, quote = '"') else formatC(x, digits = 17, format = "g")
  if (is.numeric(x)) items[!is.finite(x)] <- "null"
  if (length(x) == 1 && !inherits(x, "AsIs")) return(unname(items))
  paste0("[", paste(items, collapse = ","), "]")
}

reply <- function(values) {
  cat("@", json(values), "\n", sep = "")
  flush(stdout())
}

now <- function() as.numeric(Sys.time())

if (!requireNamespace(tool, quietly = TRUE)) {
  reply(list(error = paste("the R package", tool, "is not installed")))
  quit(status = 1)
}
suppressPackageStartupMessages(library(tool, character.only = TRUE))

families <- list(gaussian = gaussian(), poisson = poisson(), bernoulli = binomial())

call_tool <- function(formula, family, data) {
  if (tool == "glmmTMB") {
    control <- glmmTMBControl(parallel = threads)
    return(glmmTMB(formula, data = data, family = families[[family]], control = control))
  }
  if (family == "gaussian") return(lmer(formula, data = data, REML = FALSE))
  glmer(formula, data = data, family = families[[family]])
}

fit_once <- function(family, text) {
  formula <- as.formula(text)
  remarks <- character(0)
  remember <- function(restart) function(condition) {
    remarks <<- c(remarks, trimws(conditionMessage(condition)))
    invokeRestart(restart)
  }
  began <- now()
  fit <<- withCallingHandlers(
    call_tool(formula, family, data),
    warning = remember("muffleWarning"), message = remember("muffleMessage")
  )
  seconds <- now() - began
  estimates <- if (tool == "glmmTMB") fixef(fit)$cond else fixef(fit)
  found <- list(
    seconds = seconds, loglik = as.numeric(logLik(fit)),
    names = I(names(estimates)), estimates = I(as.numeric(estimates)), remarks = I(unique(remarks))
  )
  if (tool == "glmmTMB") return(found)
  spread <- as.data.frame(VarCorr(fit))
  spread <- spread[is.na(spread$var2), ]
  effects <- ifelse(is.na(spread$var1), "", spread$var1)
  c(found, list(groups = I(spread$grp), effects = I(effects), group_sds = I(spread$sdcor)))
}

answer <- function(words) {
  if (words[1] == "load") {
    data <<- read.csv(words[2], stringsAsFactors = TRUE)
    return(list(rows = nrow(data)))
  }
  if (words[1] == "fit") return(fit_once(words[2], words[3]))
  if (words[1] == "print") {
    began <- now()
    text <- capture.output(print(summary(fit)))
    return(list(seconds = now() - began, characters = sum(nchar(text))))
  }
  stop("unknown command ", words[1])
}

version_of <- function(package) as.character(packageVersion(package))
reply(list(versions = c(
  list(R = paste(R.version$major, R.version$minor, sep = "."), BLAS = basename(extSoftVersion()[["BLAS"]])),
  if (tool == "glmmTMB") list(glmmTMB = version_of("glmmTMB"), TMB = version_of("TMB")),
  if (tool == "lme4") list(lme4 = version_of("lme4")),
  list(Matrix = version_of("Matrix"))
)))

input <- file("stdin", "r")
while (length(line <- readLines(input, n = 1)) > 0) {
  words <- strsplit(line, "\t", fixed = TRUE)[[1]]
  tryCatch(reply(answer(words)), error = function(e) reply(list(error = conditionMessage(e))))
}
