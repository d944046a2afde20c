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
    if (unit === "percent") return `${general(stated)}%`;
    return unit === "tokens" || unit === "number" ? stated.toLocaleString("en-US") : general(stated);
  }

  const explain = (table, says, facts) =>
    says
      .replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? show(table, name, facts[name]) : whole))
      .replace(/\b1 (stage|device|rank|request)s\b/g, "1 $1");

  /* What a web page writes for characters that logs have; an ampersand last, so that none is read twice. */
  const ENTITIES = [
    ["&#39;", "'"],
    ["&#x27;", "'"],
    ["&quot;", '"'],
    ["&#34;", '"'],
    ["&gt;", ">"],
    ["&lt;", "<"],
    ["&nbsp;", " "],
    ["&amp;", "&"],
  ];

  function plainText(text) {
    // deno-lint-ignore no-control-regex -- terminals color logs with escape sequences
    const plain = text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, "").replaceAll("\u00a0", " ");
    return ENTITIES.reduce((known, [entity, sign]) => known.replaceAll(entity, sign), plain);
  }

  /* Python and JavaScript have different blanks beyond ASCII. */
  const trimmed = (text) => text.replace(/^[\t-\r ]+|[\t-\r ]+$/g, "");

  /* {engine, facts, recognised: [{number, text, pattern, facts, says}], unknown: [[number, text]]} or {error}. */
  function readLog(table, text) {
    if (!trimmed(text)) {
      return { error: "There is nothing but blanks: paste the start-up log of vLLM or SGLang." };
    }
    const lines = plainText(text).split(/\r\n|\n|\r/);
    if (text.length > MOST_CHARACTERS || lines.length > MOST_LINES) {
      return { error: "This is too long: the start of the log, up to the first request, is enough." };
    }
    const tests = expressions(table),
      facts = {},
      recognised = [],
      unknown = [],
      votes = { vllm: 0, sglang: 0, tensorrt_llm: 0 };
    const { first, end, starts } = lastStart(table, lines);
    lines.forEach((line, index) => {
      const shown = trimmed(line.slice(0, LONGEST_LINE));
      if (!shown || index < first || index >= end) return;
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
    return { engine, facts, recognised, unknown, starts };
  }

  // Of several starts one after the other, the last that tells something: the same as last_start() in Python.
  function lastStart(table, lines) {
    const begins = new RegExp(table.begins, "s"),
      results = new RegExp(table.results, "s");
    let begun = 0,
      told = false,
      starts = 1,
      chosen = { first: 0, end: lines.length };
    lines.forEach((line, index) => {
      const cut = line.slice(0, LONGEST_LINE);
      if (told && begins.test(cut)) {
        chosen = { first: begun, end: index };
        begun = index;
        told = false;
        starts += 1;
      } else if (!told && results.test(cut)) told = true;
    });
    return told || starts === 1 ? { first: begun, end: lines.length, starts } : { ...chosen, starts };
  }

  function merged(table, name, known, stated) {
    const how = table.facts[name].merge;
    if (known === undefined || how === "last" || typeof stated === "string" || typeof known === "string") {
      return stated;
    }
    return how === "least" ? Math.min(known, stated) : Math.max(known, stated);
  }

  /* Whether more than tensors are divided, which the published data has no plan for: no plan is better than a wrong one. */
  const spread = (facts) =>
    facts.pipeline_parallel > 1 || facts.context_parallel > 1 || facts.data_parallel > 1 ||
    facts.redundant_experts > 0;

  /* The model's block plan under a log's flags and the current release's rules; null where the log is another
     engine's. `own` and `fp8` are bytes of a request at a length, `poolOf` the pool at a size and a number of
     requests at once; it is null where the accelerator is not known. */
  function layout(reading, site, model, gpu) {
    if (!site || !model || !["vllm", null].includes(reading.engine)) return null;
    const facts = reading.facts;
    if (spread(facts)) return null;
    const size = site.sizes.indexOf(facts.tensor_parallel || 1);
    const kind = gpu ? gpu.kind : 0;
    const dtype = facts.kv_dtype;
    const kv = dtype === undefined || dtype === "auto"
      ? model.kv
      : kernel.words.two_byte_kv.includes(dtype)
      ? "bf16"
      : dtype;
    const planOf = (name, place) => {
      const index = place < 0 || !(name in model.plan) ? -1 : model.plan[name][place][kind];
      return index < 0 ? null : model.plans[index];
    };
    const own = planOf(kv, size);
    if (!own) return null;
    const other = kv === "bf16" ? planOf("fp8", size) : null;
    const supposed = (gpu || site.gpus.find((one) => one.kind === kind)).step;
    const tokens = facts.max_batched_tokens || supposed[0];
    const rows = kernel.maxNumSeqsOf(facts.max_seqs || supposed[1], tokens);
    const terms = (made) => kernel.tokensInFlight(made[3], site.engine.in_flight, tokens, supposed[0]);
    const bytes = (made) => (length) => kernel.requestBytes(made[2], terms(made), length);
    const [block, kept, constant] = own;
    const weightsAt = (place) => {
      const added = model.loaded.released[place];
      return model.weights.released[place] + (Array.isArray(added) ? added[kind] : added);
    };
    const longest = facts.max_model_len || facts.concurrency_len || model.limit;
    const poolOf = (place, seqs) => {
      const rates = ((gpu.runner && model.other_rates) || model.rates)?.[place];
      const [multicast, shared] = gpu.outside;
      const eager = Boolean(facts.eager);
      const reserve = rates
        ? kernel.reserveBytes(rates, tokens, seqs, eager, gpu.own, multicast, shared, longest)
        : model.reserve[gpu.reserve][place][0];
      const memory = facts.utilization === undefined
        ? gpu.memory
        : kernel.engineMemory(gpu.usable, facts.utilization);
      return kernel.poolLeft(memory, weightsAt(place), reserve);
    };
    return {
      size,
      sizes: site.sizes,
      rows,
      own: bytes(own),
      fp8: other && bytes(other),
      at: (place) => {
        const made = planOf(kv, place);
        return made && bytes(made);
      },
      weights: weightsAt(size),
      poolOf: gpu ? poolOf : null,
      block,
      longest: (pool, limit) =>
        kernel.longestContext(kernel.freeBytes(pool, block, kept), constant, terms(own), limit),
      requests: (pool, length) => kernel.numRequests(pool, block, kept, bytes(own)(length)),
      concurrency: (pool, length) => kernel.concurrency(pool, block, bytes(own)(length)),
      current: currentRelease(reading, site),
    };
  }

  function currentRelease(reading, site) {
    const stated = /^v?(\d+)\.(\d+)/.exec(reading.facts.engine_version || "");
    if (!stated || site.engine.since === null) return true;
    const [major, minor] = site.engine.since.split(".").map(Number);
    return Number(stated[1]) > major || (Number(stated[1]) === major && Number(stated[2]) >= minor);
  }

  /* What gives the cache a place at all, where weights and the engine's own memory leave none. */
  function room(facts, rules, pool, device, longest) {
    const found = [];
    const needed = facts.needed ?? (rules && longest ? rules.own(longest) : 1);
    const share = facts.utilization;
    if (share !== undefined && share < RAISED && device && kernel.raisedPool(pool, share, device) >= needed) {
      found.push({ change: "utilization", value: RAISED, concurrency: null });
    }
    if (rules?.poolOf) {
      const now = rules.poolOf(rules.size, rules.rows);
      const enough = kernel.words.fewer_requests.find((seqs) =>
        seqs < rules.rows && pool + rules.poolOf(rules.size, seqs) - now >= needed
      );
      if (enough) found.push({ change: "fewer_requests", value: enough, concurrency: null });
    }
    return [...found, ...moreDevices(rules, pool, longest)];
  }

  /* Twice, four or eight times the devices, the first that suffices for one longest request. */
  function moreDevices(rules, pool, longest) {
    if (!rules?.poolOf || pool === null) return [];
    const now = rules.poolOf(rules.size, rules.rows);
    for (const factor of [2, 4, 8]) {
      const place = rules.sizes.indexOf(rules.sizes[rules.size] * factor);
      const own = place < 0 ? null : rules.at(place);
      if (!own) continue;
      const freed = rules.poolOf(place, rules.rows) - now;
      if (pool + freed >= (longest ? own(longest) : 1)) {
        return [{ change: "tensor_parallel", value: rules.sizes[place], concurrency: null }];
      }
    }
    return [];
  }

  /* What to change, from the log's own numbers; `rules` (see layout) refine it where the model is known. */
  function diagnose(reading, rules, total) {
    const facts = reading.facts;
    const longest = facts.concurrency_len || facts.max_model_len || null;
    let pool = facts.kv_pool ?? null;
    if (pool === null && facts.key_bytes !== undefined && facts.value_bytes !== undefined) {
      pool = facts.key_bytes + facts.value_bytes;
    }
    const device = facts.total_memory || total || null;
    const fits = concurrency(facts, longest, pool, rules);
    const changes = [];
    if (pool !== null && pool <= 0) changes.push(...room(facts, rules, pool, device, longest));
    else if (fits !== null && longest !== null && fits < 1) {
      const shorter = fittingLength(facts, rules, pool, longest);
      if (shorter) changes.push({ change: "max_model_len", value: shorter, concurrency: 1 });
      const halved = rules
        ? (rules.fp8 ? fits * rules.own(longest) / rules.fp8(longest) : null)
        : facts.kv_dtype === undefined || kernel.words.two_byte_kv.includes(facts.kv_dtype)
        ? 2 * fits
        : null;
      if (halved !== null && halved >= 1) {
        changes.push({ change: "kv_dtype", value: "fp8", concurrency: halved });
      }
      if (facts.utilization !== undefined && facts.utilization < RAISED && device && pool) {
        const raised = kernel.concurrencyAt(fits, pool, facts.utilization, RAISED, device);
        if (raised >= 1) changes.push({ change: "utilization", value: RAISED, concurrency: raised });
      }
      if (changes.length < 2) changes.push(...moreDevices(rules, pool, longest));
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
    const agreed = Boolean(rules && pool > 0 && longest) &&
      (!facts.concurrency || kernel.agrees(rules.concurrency(pool, longest), facts.concurrency));
    const shorter = [];
    for (const part of longest ? [1, 2, 4, 8] : []) {
      const length = Math.floor(longest / part);
      if (length < 1) continue;
      if (agreed) shorter.push([length, rules.requests(pool, length)]);
      else if (facts.concurrency !== undefined) {
        shorter.push([length, Math.floor((facts.concurrency * longest) / length)]);
      } else if (tokensOf(facts)) shorter.push([length, Math.floor(tokensOf(facts) / length)]);
    }
    return { concurrency: fits, longest, pool, changes, shorter };
  }

  /* The longest request that fits: the engine's word, our plan's, in proportion, or the tokens it can store. */
  function fittingLength(facts, rules, pool, longest) {
    if (facts.estimated_len !== undefined) return facts.estimated_len;
    if (rules && pool > 0) return rules.longest(pool, longest) || null;
    if (facts.needed && pool > 0) return kernel.proportionalLength(longest, pool, facts.needed) || null;
    return facts.storable || tokensOf(facts) || null;
  }

  const tokensOf = (facts) => facts.full_tokens || facts.kv_tokens || null;

  function concurrency(facts, longest, pool, rules) {
    if (facts.concurrency !== undefined) return facts.concurrency;
    if (pool !== null && pool <= 0) return 0;
    if (facts.needed && pool !== null) return Math.max(pool, 0) / facts.needed;
    const tokens = tokensOf(facts) || facts.storable;
    if (longest && tokens) return tokens / longest;
    return longest && rules && pool !== null ? rules.concurrency(pool, longest) : null;
  }

  const api = { readLog, spread, layout, diagnose, show, explain };
  root.kvLogLines = api;
})(typeof globalThis === "object" ? globalThis : this);
