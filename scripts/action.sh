#!/usr/bin/env bash
# What the GitHub Action runs: one estimate, a summary of it, and status 3 where too few requests fit.
# Everything comes from the environment, so that no input is ever part of a command line of the shell.
# The working directory is a checkout that a stranger may have written: Python runs isolated (-I), since it would
# otherwise import json.py from there.
set -euo pipefail

fail() {
  echo "kvreport: $1" >&2
  exit 2
}

case "$MODEL" in
  "" | -*) fail "model: found '$MODEL'; allowed: a model of the catalog, or the path of a config.json" ;;
esac
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

# Status 0 without an answer (an argument such as --help) must not pass as one.
read_answer='
import json, sys
answer = json.load(open(sys.argv[1], encoding="utf-8"))
requests, verdict = answer["max_concurrent_requests"], answer["verdict"]
assert type(requests) is int and verdict.isidentifier()
print(f"requests={requests}\nverdict={verdict}")
'
outputs="$(python3 -I -c "$read_answer" "$report" 2>/dev/null)" ||
  fail "arguments: found no answer in JSON; allowed: arguments of kvreport estimate that ask one question"
printf '%s\n' "$outputs" >>"${GITHUB_OUTPUT:-/dev/null}"
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
