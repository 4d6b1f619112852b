#!/usr/bin/env bash
# The steps of action.yml; any other CI on Linux can run them.
#
#   ci/action.sh install   installs hitproof and what vLLM's modules import
#   ci/action.sh judge     runs hitproof check, or hitproof diff where a base is given
#
# What `judge` reads:
#
#   HITPROOF_TARGET  what to check, by default the directory it is run in
#   HITPROOF_BASE    what to compare with; then no check is run
#   HITPROOF_HEAD    what to compare, by default the target
#   HITPROOF_LEDGER  the ledger for the check
#   HITPROOF_FORMAT  what is printed, by default GitHub's annotations
#   HITPROOF_ARGS    more arguments, quoted as for a shell
#
# The exit code is hitproof's. A check leaves hitproof.sarif in RUNNER_TEMP; both add their table to
# GITHUB_STEP_SUMMARY and leave an HTML report in RUNNER_TEMP/hitproof-report.
# GITHUB_OUTPUT gets exit-code, and sarif and report if they are there.
set -euo pipefail

refuse() {
  echo "hitproof: $1" >&2
  exit 2
}

install() {
  local root
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  python -m pip install --disable-pip-version-check "${root}[target]" ||
    refuse "hitproof cannot be installed; see above"
}

judge() {
  local target=${HITPROOF_TARGET:-.} base=${HITPROOF_BASE:-} head=${HITPROOF_HEAD:-}
  local ledger=${HITPROOF_LEDGER:-} format=${HITPROOF_FORMAT:-github}
  local scratch=${RUNNER_TEMP:-${TMPDIR:-/tmp}}
  local sarif=$scratch/hitproof.sarif table=$scratch/hitproof.md
  local report=$scratch/hitproof-report
  local words command code=0
  words=$(python3 -c 'import shlex, sys; print(*shlex.split(sys.argv[1]), sep="\n")' \
    "${HITPROOF_ARGS:-}" 2>/dev/null) || refuse "args has an unbalanced quotation mark; close it or remove it"
  if [[ -n $base ]]; then
    [[ -z $ledger ]] || refuse "a ledger is for a check; remove either ledger or base"
    command=(diff "$base" "${head:-$target}" --format "$format" --write "markdown=$table")
  else
    [[ -z $head ]] || refuse "head is for a comparison; also name the base"
    command=(check "$target" --format "$format" --write "sarif=$sarif" --write "markdown=$table")
    [[ -z $ledger ]] || command+=(--ledger "$ledger")
  fi
  command+=(--report "$report")
  while IFS= read -r word; do
    [[ -z $word ]] || command+=("$word")
  done <<<"$words"

  rm -f "$sarif" "$table" "$report/index.html"
  hitproof "${command[@]}" || code=$?

  if [[ -f $table ]]; then
    cat "$table" >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
  fi
  if [[ -n ${GITHUB_OUTPUT:-} ]]; then
    echo "exit-code=$code" >>"$GITHUB_OUTPUT"
    if [[ -f $sarif ]]; then
      echo "sarif=$sarif" >>"$GITHUB_OUTPUT"
    fi
    if [[ -f $report/index.html ]]; then
      echo "report=$report" >>"$GITHUB_OUTPUT"
    fi
  fi
  exit "$code"
}

case ${1:-} in
  install | judge) "$1" ;;
  *) refuse "name a step, install or judge" ;;
esac
