/* Reading a start-up log, in the browser: kvreport.enginelog and the model-free part of
   kvreport.diagnosis, with the patterns that the page carries. A test holds it equal to Python's. */
(function (root) {
  "use strict";

  const GIB = 2 ** 30;
  const LONGEST_LINE = 20000, MOST_CHARACTERS = 20_000_000, MOST_LINES = 200_000;
  const kernel = root.kvKernel;
  const { RAISED_UTILIZATION: RAISED, COMFORTABLE_SPARE_BYTES: COMFORTABLE } = kernel;

  const compiled = new WeakMap();
  function expressions(table) {
    if (!compiled.has(table)) {
      compiled.set(
        table,
        table.patterns.map((pattern) => new RegExp(pattern.expression, "s")),
      );
    }
    return compiled.get(table);
  }

  function value(table, name, text, unit) {
    const kind = table.facts[name].unit;
    if (kind === "text") return text;
    if (kind === "flag") return true;
    const number = Number(text.replace(/,/g, ""));
    if (unit) {
      return number >= 0
        ? Math.floor(number * table.scales[unit] + 0.5)
        : -Math.floor(-number * table.scales[unit] + 0.5);
    }
    return kind === "tokens" || kind === "number" ? Math.trunc(number) : number;
  }

  const general = (number) => String(Number(number.toPrecision(6)));

  function show(table, name, stated) {
    const unit = table.facts[name].unit;
    if (typeof stated === "boolean") return stated ? "yes" : "no";
    if (typeof stated === "string") return stated;
    if (unit === "bytes") {
      return `${
        (stated / GIB).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })
      } GiB`;
    }
    if (unit === "percent") return `${general(stated)} %`;
    return unit === "tokens" || unit === "number" ? stated.toLocaleString("en-US") : general(stated);
  }

  const explain = (table, says, facts) =>
    says.replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? show(table, name, facts[name]) : whole));

  /* Python and JavaScript have different blanks beyond ASCII. */
  const trimmed = (text) => text.replace(/^[\t-\r ]+|[\t-\r ]+$/g, "");

  /* {engine, facts, recognised: [{number, text, pattern, facts, says}], unknown: [[number, text]]} or {error}. */
  function readLog(table, text) {
    if (!trimmed(text)) {
      return { error: "There is nothing but blanks: paste the start-up log of vLLM or SGLang." };
    }
    // deno-lint-ignore no-control-regex -- terminals color logs with escape sequences
    const lines = text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, "").split(/\r\n|\n|\r/);
    if (text.length > MOST_CHARACTERS || lines.length > MOST_LINES) {
      return { error: "This is too long: the start of the log, up to the first request, is enough." };
    }
    const tests = expressions(table),
      facts = {},
      recognised = [],
      unknown = [],
      votes = { vllm: 0, sglang: 0, tensorrt_llm: 0 };
    lines.forEach((line, index) => {
      const shown = trimmed(line.slice(0, LONGEST_LINE));
      if (!shown) return;
      let any = false;
      table.patterns.forEach((pattern, place) => {
        const match = tests[place].exec(shown);
        if (!match) return;
        const stated = {};
        for (const [group, found] of Object.entries(match.groups || {})) {
          if (found === undefined) continue;
          const [name, unit] = group.split("__");
          const fact = name.replace(/_+$/, "");
          stated[fact] = value(table, fact, found, unit);
        }
        for (const flag of ["eager", "sorts"]) if (pattern.name === flag) stated[flag] = true;
        if (Object.values(stated).some((one) => typeof one === "number" && Math.abs(one) > table.largest)) {
          return;
        }
        any = true;
        recognised.push({
          number: index + 1,
          text: shown,
          pattern: pattern.name,
          facts: stated,
          says: explain(table, pattern.says, stated),
        });
        if (pattern.engine) votes[pattern.engine] += 1;
        for (const [name, one] of Object.entries(stated)) facts[name] = merged(table, name, facts[name], one);
      });
      if (!any) unknown.push([index + 1, shown]);
    });
    const most = Object.keys(votes).reduce((best, one) => (votes[one] > votes[best] ? one : best));
    const engine = votes[most] > 0 ? most : null;
    return { engine, facts, recognised, unknown };
  }

  function merged(table, name, known, stated) {
    const how = table.facts[name].merge;
    if (known === undefined || how === "last" || typeof stated === "string" || typeof known === "string") {
      return stated;
    }
    return how === "least" ? Math.min(known, stated) : Math.max(known, stated);
  }

  /* What to change, from the log's own numbers; `layout` refines it where the model is known:
     {own: bytes of a request at a length, fp8: the same with an FP8 cache or null, longest(pool, limit), requests(pool, length)}. */
  function diagnose(reading, layout, total) {
    const facts = reading.facts;
    const longest = facts.concurrency_len || facts.max_model_len || null;
    let pool = facts.kv_pool ?? null;
    if (pool === null && facts.key_bytes !== undefined && facts.value_bytes !== undefined) {
      pool = facts.key_bytes + facts.value_bytes;
    }
    const device = facts.total_memory || total || null;
    const fits = concurrency(facts, longest, pool);
    const changes = [];
    if (fits !== null && longest !== null && fits < 1) {
      const shorter = facts.estimated_len ??
        (layout && pool > 0
          ? layout.longest(pool, longest) || null
          : facts.storable ?? facts.kv_tokens ?? null);
      if (shorter) changes.push({ change: "max_model_len", value: shorter, concurrency: 1 });
      const halved = layout
        ? (layout.fp8 ? fits * layout.own(longest) / layout.fp8(longest) : null)
        : facts.kv_dtype === undefined || kernel.words.two_byte_kv.includes(facts.kv_dtype)
        ? 2 * fits
        : null;
      if (halved !== null && halved >= 1) {
        changes.push({ change: "kv_dtype", value: "fp8", concurrency: halved });
      }
      if (facts.utilization !== undefined && facts.utilization < RAISED && device && pool > 0) {
        const raised = kernel.concurrencyAt(fits, pool, facts.utilization, RAISED, device);
        if (raised >= 1) changes.push({ change: "utilization", value: RAISED, concurrency: raised });
      }
    }
    if (
      fits !== null && facts.max_seqs !== undefined && fits >= 1 && fits < facts.max_seqs &&
      reading.engine === "vllm"
    ) {
      changes.push({ change: "max_seqs", value: Math.trunc(fits), concurrency: null });
    }
    if (facts.spare_memory > COMFORTABLE && facts.before_load && facts.mem_fraction !== undefined) {
      changes.push({
        change: "mem_fraction",
        value: kernel.raisedFraction(facts.mem_fraction, facts.spare_memory, facts.before_load),
        concurrency: null,
      });
    }
    const shorter = [];
    for (const part of longest ? [1, 2, 4, 8] : []) {
      const length = Math.floor(longest / part);
      if (length < 1) continue;
      if (layout && pool > 0) shorter.push([length, layout.requests(pool, length)]);
      else if (facts.concurrency !== undefined) {
        shorter.push([length, Math.floor((facts.concurrency * longest) / length)]);
      } else if (facts.kv_tokens !== undefined) shorter.push([length, Math.floor(facts.kv_tokens / length)]);
    }
    return { concurrency: fits, longest, pool, changes, shorter };
  }

  function concurrency(facts, longest, pool) {
    if (facts.concurrency !== undefined) return facts.concurrency;
    if (pool !== null && pool <= 0) return 0;
    if (facts.needed && pool !== null) return Math.max(pool, 0) / facts.needed;
    const tokens = facts.kv_tokens || facts.storable;
    return longest && tokens !== undefined ? tokens / longest : null;
  }

  const api = { readLog, diagnose, show, explain };
  root.kvLogLines = api;
})(typeof globalThis === "object" ? globalThis : this);
