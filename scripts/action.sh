#!/usr/bin/env bash
# What the GitHub Action runs: one estimate, a summary of it, and status 3 where too few requests fit.
# Everything comes from the environment, so that no input is ever part of a command line of the shell.
set -euo pipefail

arguments=("$MODEL" --gpu "$GPU")
[ -z "${CONTEXT:-}" ] || arguments+=(--context "$CONTEXT")
while IFS= read -r line; do
  [ -z "$line" ] || arguments+=("$line")
done <<<"${ARGUMENTS:-}"

required=()
[ -z "${REQUIRE:-}" ] || required=(--require "$REQUIRE")

report="$(mktemp)"
trap 'rm -f "$report"' EXIT
status=0
"$KVREPORT" estimate "${arguments[@]}" "${required[@]}" --format json >"$report" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"

read_field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$report" "$1"; }
{
  echo "requests=$(read_field max_concurrent_requests)"
  echo "verdict=$(read_field verdict)"
} >>"${GITHUB_OUTPUT:-/dev/null}"
{
  echo '### kvreport'
  echo '```text'
  "$KVREPORT" estimate "${arguments[@]}" | head -n 12
  if [ -n "${AGAINST:-}" ]; then
    echo
    if [ -e "$AGAINST" ]; then set -- "$AGAINST" "$MODEL"; else set -- "$AGAINST" "${ENGINE:-vllm}" --model "$MODEL"; fi
    "$KVREPORT" diff "$@" --gpu "$GPU" ${CONTEXT:+--context "$CONTEXT"} || true
  fi
  echo '```'
} >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
exit "$status"
