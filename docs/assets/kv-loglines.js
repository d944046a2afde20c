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
      .replace(/\b1 (stage|device|rank|request|server|token)s\b/g, "1 $1");

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
      return { error: "There is nothing but blanks: paste the start-up log of an engine." };
    }
    const lines = plainText(text).split(/\r\n|\n|\r/);
    if (text.length > MOST_CHARACTERS || lines.length > MOST_LINES) {
      return { error: "This is too long: the start of the log, up to the first request, is enough." };
    }
    if (isScript(table, lines)) {
      return {
        file: true,
        error: "This is a deployment file or a script, not a start-up log.",
      };
    }
    const tests = expressions(table),
      doubtful = [],
      facts = {},
      recognised = [],
      unknown = [],
      votes = Object.fromEntries(table.engines.map((name) => [name, 0]));
    const { kept, others } = oneService(table, lines);
    const { first, end, starts } = lastStart(table, kept);
    kept.forEach((line, index) => {
      const shown = trimmed(line.slice(0, LONGEST_LINE));
      if (!shown || index < first || index >= end) return;
      let any = false;
      table.patterns.forEach((pattern, place) => {
        const match = pattern.needed.some((one) => shown.includes(one)) ? tests[place].exec(shown) : null;
        if (!match) return;
        const stated = {};
        let doubt = false;
        for (const [group, found] of Object.entries(match.groups || {})) {
          if (found === undefined) continue;
          const [name, unit] = group.replace(/_+(gib|gb|mib|ki|k|gb_10)$/, "__$1").split("__");
          const fact = name.replace(/_+$/, "");
          const numeric = !["text", "flag"].includes(table.facts[fact].unit);
          doubt ||= numeric && found.includes(",") && !THOUSANDS.test(found);
          stated[fact] = value(table, fact, found, unit);
        }
        if (doubt && doubtful[doubtful.length - 1] !== index + 1) doubtful.push(index + 1);
        if (
          doubt ||
          Object.values(stated).some((one) => typeof one === "number" && Math.abs(one) > table.largest)
        ) return;
        any = true;
        recognised.push({
          number: index + 1,
          text: shown,
          pattern: pattern.name,
          facts: stated,
          says: explain(table, pattern.says, stated),
        });
        if (pattern.engine) votes[pattern.engine] += 1;
        for (const [name, one] of Object.entries(stated)) {
          facts[name] = pattern.replaces ? one : merged(table, name, facts[name], one);
        }
      });
      if (!any) unknown.push([index + 1, shown]);
    });
    const most = Object.keys(votes).reduce((best, one) => (votes[one] > votes[best] ? one : best));
    const engine = votes[most] > 0 ? most : null;
    return { engine, facts, recognised, unknown, starts: starts + others, doubtful };
  }

  /* Thousands as engines print them: a comma that is followed by other than three digits is a decimal one. */
  const THOUSANDS = /^(?:-?[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]+)?|-?[0-9]+(?:\.[0-9]+)?)$/;

  /* A deployment file or a shell script: is_script() in Python. */
  function isScript(table, lines) {
    const find = Object.fromEntries(
      ["script", "written", "results", "begins"].map((name) => [name, new RegExp(table[name], "s")]),
    );
    let script = 0;
    for (const [index, line] of lines.entries()) {
      const cut = trimmed(line.slice(0, LONGEST_LINE));
      if (cut.startsWith("#") && !(index === 0 && cut.startsWith("#!"))) continue;
      if (find.written.test(cut) || find.results.test(cut) || find.begins.test(cut)) return false;
      if (find.script.test(cut)) script += 1;
    }
    return script >= table.most_script;
  }

  // Of the lines of several services beside each other, those of the last that tells something.
  function oneService(table, lines) {
    const service = new RegExp(table.service), results = new RegExp(table.results, "s");
    const named = lines.map((line) => service.exec(line)?.[1]);
    const told = named.filter((name, at) => name && results.test(lines[at].slice(0, LONGEST_LINE)));
    const others = new Set(told).size - 1;
    if (others < 1) return { kept: lines, others: 0 };
    const last = told[told.length - 1];
    return { kept: lines.map((line, at) => !named[at] || named[at] === last ? line : ""), others };
  }

  // Of several starts one after the other, the last that tells something: the same as last_start() in Python.
  function lastStart(table, lines) {
    const begins = new RegExp(table.begins, "s"),
      commands = new RegExp(table.commands, "s"),
      results = new RegExp(table.results, "s");
    let begun = 0,
      told = false,
      starts = 1,
      command = -1,
      chosen = { first: 0, end: lines.length };
    lines.forEach((line, index) => {
      const cut = line.slice(0, LONGEST_LINE);
      const result = (!told || command >= 0) && results.test(cut);
      if ((told && begins.test(cut)) || (result && command >= 0)) {
        const first = command >= 0 ? command : index;
        chosen = { first: begun, end: first };
        begun = first;
        told = result;
        command = -1;
        starts += 1;
      } else if (result) told = true;
      else if (told && command < 0 && commands.test(cut)) command = index;
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

  /* Flags of a log that spread a model over devices, as vLLM spells them. */
  const spread = (facts) => {
    const flags = kernel.words.serve.vllm, names = [];
    for (
      const [fact, flag] of [
        ["tensor_parallel", flags.tensor_parallel],
        ["pipeline_parallel", flags.pipeline_parallel],
        ["data_parallel", flags.data_parallel],
        ["context_parallel", flags.decode_context_parallel],
        ["nodes", flags.nodes],
      ]
    ) if (facts[fact] > 1) names.push(`${flag} ${facts[fact]}`);
    if (facts.expert_parallel) names.push(flags.expert_parallel);
    if (facts.redundant_experts > 0) names.push(`${facts.redundant_experts} redundant experts`);
    if (facts.all_to_all !== undefined) names.push(facts.all_to_all);
    if (encodesWhole(facts)) names.push(`${flags.mm_encoder_tp_mode} data`);
    if (partitioned(facts)) names.push(`VLLM_PP_LAYER_PARTITION=${facts.pipeline_partition}`);
    return names;
  };

  const encodesWhole = (facts) => facts.whole_encoders && facts.tensor_parallel > 1;
  const partitioned = (facts) => facts.pipeline_partition !== undefined && facts.pipeline_parallel > 1;

  /* The published layout with these fields; undefined where there is none. */
  function published(site, { tp, pp, dp, ep, dcp, nodes }) {
    return [...site.layouts, ...(site.sizing_layouts || [])].find((one) =>
      one.tp === tp && one.pp === pp && one.dp === dp && one.ep === ep && one.dcp === dcp &&
      one.nodes === nodes
    );
  }

  /* A log's layout. What the published data has no plan for has none: no plan is better than a wrong one. */
  function layoutOf(site, facts) {
    if (
      partitioned(facts) || encodesWhole(facts) || facts.redundant_experts > 0 ||
      facts.all_to_all !== undefined
    ) return undefined;
    return published(site, {
      tp: facts.tensor_parallel || 1,
      pp: facts.pipeline_parallel || 1,
      dp: facts.data_parallel || 1,
      ep: Boolean(facts.expert_parallel),
      dcp: facts.context_parallel || 1,
      nodes: facts.nodes || 1,
    });
  }

  /* Why a machine of unequal accelerators is not the log's: it has another number of ranks. */
  function otherRanks(facts, gpu) {
    const ranks = (facts.tensor_parallel || 1) * (facts.pipeline_parallel || 1);
    const found = gpu?.devices?.length;
    if (!found || found === ranks || found === ranks * (facts.data_parallel || 1)) return "";
    return `found ${found} devices for a log of ${ranks} ranks; allowed: one accelerator, or one for each rank`;
  }

  /* The model's block plan under a log's flags and the current release's rules; null where the log is another
     engine's, or spreads the model as no published numbers do. A rank has the part of a pipeline stage on one of
     unequal accelerators; the fullest is the one that the log's advice is of. `own` and `fp8` are bytes of a request
     at a length, `poolWith` the pool with a number of requests at once; it is null where the accelerator is not known. */
  function layout(reading, site, model, gpu) {
    if (!site || !model || !["vllm", null].includes(reading.engine)) return null;
    const facts = reading.facts, found = layoutOf(site, facts);
    if (!found || otherRanks(facts, gpu)) return null;
    return laidOut(reading, site, model, gpu, found);
  }

  function laidOut(reading, site, model, gpu, spans) {
    const facts = reading.facts, dtype = facts.kv_dtype;
    const first = gpu?.devices ? gpu.devices[0] : gpu;
    const own = (first && model.kvs?.[first.kind]) || model.kv;
    const kv = dtype === undefined || dtype === "auto"
      ? own
      : kernel.words.two_byte_kv.includes(dtype)
      ? "bf16"
      : dtype;
    const usual = root.kvCapacity.usualStep(model, first || site.gpus.find((one) => one.kind === 0));
    const tokens = facts.max_batched_tokens || usual[0];
    const rows = kernel.maxNumSeqsOf(facts.max_seqs || usual[1], tokens);
    const ranks = spans.places.flatMap((place, stage) =>
      [...new Set(gpu?.devices ? gpu.devices.slice(stage * spans.tp, (stage + 1) * spans.tp) : [gpu])].map(
        (device) => rankOf(facts, site, model, place, device, kv, tokens),
      )
    );
    if (ranks.includes(null)) return null;
    const pools = ranks.map((one) => (gpu ? one.poolOf(rows) : 0));
    const fullest = ranks[pools.indexOf(Math.min(...pools))];
    const least = (of) => Math.min(...ranks.map(of));
    return {
      rows,
      own: fullest.own,
      fp8: fullest.fp8,
      weights: Math.max(...ranks.map((one) => one.weights)),
      poolWith: gpu && fullest.poolOf,
      tokensOf: (pool, length) =>
        ranks.map((one) => kernel.printedTokens(pool, one.block, one.own(length), length))
          .reduce((fewest, one) => (one < 0 ? fewest : fewest < 0 ? one : Math.min(fewest, one))),
      longest: (pool, limit) => least((one) => one.longest(pool, limit)),
      requests: (pool, length) =>
        least((one) => kernel.numRequests(pool, one.block, one.kept, one.own(length))),
      concurrency: (pool, length) => least((one) => kernel.concurrency(pool, one.block, one.own(length))),
      current: currentRelease(reading, site),
      /* The same over more devices; undefined where nothing is published, or which they are is not known. */
      times: (factor) => {
        const wider = gpu && !gpu.devices && published(site, { ...spans, tp: spans.tp * factor });
        return wider && { tp: wider.tp, rules: laidOut(reading, site, model, gpu, wider) };
      },
    };
  }

  /* A place's part of the model on a device; null where it cannot be laid out. */
  function rankOf(facts, site, model, place, device, kv, tokens) {
    const kind = device ? device.kind : 0;
    const planOf = (name) => model.plans[model.plan[name]?.[place]?.[kind] ?? -1];
    const made = planOf(kv), other = kv === "bf16" ? planOf("fp8") : undefined;
    const released = model.weights.released[place];
    if (!made || released === null || released === undefined) return null;
    const [usual] = root.kvCapacity.usualStep(model, device || site.gpus.find((one) => one.kind === kind));
    const terms = (plan) => kernel.tokensInFlight(plan[3], plan[5] ?? site.engine.in_flight, tokens, usual);
    const bytes = (plan) => (length) => kernel.requestBytes(plan[2], terms(plan), length);
    const [block, kept, constant] = made;
    const added = model.loaded.released[place];
    const weights = released + (Array.isArray(added) ? added[kind] : added);
    const longest = facts.max_model_len || facts.concurrency_len || model.limit;
    return {
      block,
      kept,
      weights,
      own: bytes(made),
      fp8: other && bytes(other),
      longest: (pool, limit) =>
        kernel.longestContext(kernel.freeBytes(pool, block, kept), constant, terms(made), limit),
      poolOf: (seqs) => {
        const rates = ((device.runner && model.other_rates) || model.rates)?.[place];
        const eager = Boolean(facts.eager);
        const step = {
          tokens,
          maxNumSeqs: seqs,
          context: longest,
          ownKernels: device.own,
          splits: device.splits,
          partial: Boolean(device.partial),
          eager,
          compiled: eager,
          adapted: false,
        };
        const wide = rates
          ? kernel.reserveBytes(rates, step, device.outside[0], device.outside[1], device.outside[2])
          : model.reserve[device.reserve][place][0];
        const narrow = rates && !kernel.words.two_byte_kv.includes(kv)
          ? kernel.narrowCacheBytes(rates, step)
          : 0;
        const memory = facts.utilization === undefined
          ? device.memory
          : kernel.engineMemory(device.usable, facts.utilization);
        return kernel.poolLeft(memory, weights, wide - narrow);
      },
    };
  }

  function currentRelease(reading, site) {
    // The site's reserves are those of the second model runner.
    if (["gpu_model_runner", "0"].includes(reading.facts.model_runner)) return false;
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
    if (rules?.poolWith) {
      const now = rules.poolWith(rules.rows);
      const enough = kernel.words.fewer_requests.find((seqs) =>
        seqs < rules.rows && pool + rules.poolWith(seqs) - now >= needed
      );
      if (enough) found.push({ change: "fewer_requests", value: enough, concurrency: null });
    }
    return [...found, ...moreDevices(facts, rules, pool, longest)];
  }

  /* Twice, four or eight times the devices, the first that suffices for one longest request. */
  function moreDevices(facts, rules, pool, longest) {
    if (!rules?.poolWith || pool === null) return [];
    if (pool > 0 && rules.current && longest && !planAgrees(facts, rules, pool, longest)) return [];
    const now = rules.poolWith(rules.rows);
    for (const factor of [2, 4, 8]) {
      const wider = rules.times(factor);
      if (!wider?.rules) continue;
      const freed = wider.rules.poolWith(rules.rows) - now;
      if (pool + freed >= (longest ? wider.rules.own(longest) : 1)) {
        return [{ change: "tensor_parallel", value: wider.tp, concurrency: null }];
      }
    }
    return [];
  }

  /* What to change, from the log's own numbers; `rules` (see layout) refine it where the model is known. */
  function diagnose(reading, rules, total) {
    let facts = reading.facts, pool = facts.kv_pool ?? null;
    const longest = facts.concurrency_len || facts.max_model_len || null;
    if (pool === null && facts.key_bytes !== undefined && facts.value_bytes !== undefined) {
      pool = facts.key_bytes + facts.value_bytes;
    }
    const device = facts.total_memory || total || null;
    const beyond = pool !== null && device !== null && pool > device ? pool : null;
    if (beyond !== null) {
      const counted = kernel.words.facts_of_the_pool;
      facts = Object.fromEntries(Object.entries(facts).filter(([name]) => !counted.includes(name)));
      [reading, pool] = [{ ...reading, facts }, null];
    }
    const fits = concurrency(reading, longest, pool, rules);
    const changes = [];
    if (pool !== null && pool <= 0) changes.push(...room(facts, rules, pool, device, longest));
    else if (fits !== null && longest !== null && fits < 1 && !runsShorter(reading, fits)) {
      const shorter = fittingLength(facts, rules, pool, longest);
      if (shorter && shorter < longest) {
        changes.push({ change: "max_model_len", value: shorter, concurrency: 1 });
      }
      const halved = fp8Concurrency(facts, rules, pool, longest, fits);
      if (halved !== null && halved >= 1) {
        changes.push({ change: "kv_dtype", value: "fp8", concurrency: halved });
      }
      if (facts.utilization !== undefined && facts.utilization < RAISED && device && pool) {
        const raised = kernel.concurrencyAt(fits, pool, facts.utilization, RAISED, device);
        if (raised >= 1) changes.push({ change: "utilization", value: RAISED, concurrency: raised });
      }
      if (changes.length < 2) changes.push(...moreDevices(facts, rules, pool, longest));
    }
    if (facts.spare_memory > COMFORTABLE && facts.before_load && facts.mem_fraction !== undefined) {
      changes.push({
        change: "mem_fraction",
        value: kernel.raisedFraction(facts.mem_fraction, facts.spare_memory, facts.before_load),
        concurrency: null,
      });
    }
    const more = fits >= 1 && [null, "vllm"].includes(reading.engine)
      ? forMore(facts, rules, pool, longest, fits, device)
      : [];
    const agreed = pool > 0 && planAgrees(facts, rules, pool, longest);
    const shorter = [];
    for (const part of longest ? [1, 2, 4, 8] : []) {
      const length = Math.floor(longest / part);
      if (length < 1) continue;
      if (agreed) shorter.push([length, rules.requests(pool, length)]);
      else if (facts.concurrency !== undefined) {
        shorter.push([length, Math.floor((facts.concurrency * longest) / length)]);
      } else if (facts.needed && pool !== null) {
        shorter.push([length, Math.trunc((Math.max(pool, 0) * longest) / (facts.needed * length))]);
      } else if (tokensOf(facts) && (tokensOf(facts) >= length || !started(reading))) {
        shorter.push([length, Math.floor(tokensOf(facts) / length)]);
      }
    }
    const passed = fits === null && longest !== null && tokensOf(facts) !== null && started(reading);
    return {
      concurrency: fits,
      longest,
      pool,
      changes,
      more,
      shorter,
      linear: !agreed,
      passed,
      shorterRuns: runsShorter(reading, fits),
      beyond,
    };
  }

  /* The engine printed the tokens of its cache, and no refusal: started() in Python. */
  function started({ facts, recognised }) {
    if (["needed", "storable", "state_blocks"].some((name) => facts[name] !== undefined)) return false;
    if (recognised.some((one) => kernel.words.sglang_refusals.includes(one.pattern))) return false;
    return tokensOf(facts) !== null && (facts.kv_pool || 1) > 0;
  }

  const checks = (reading) => started(reading) && [null, "vllm"].includes(reading.engine);

  /* A server that runs although its cache holds less than one longest request: every engine but vLLM. */
  const runsShorter = (reading, fits) =>
    fits !== null && fits < 1 && started(reading) && ![null, "vllm"].includes(reading.engine);

  /* Whether the plan gives the log's own figure of requests, else of tokens; true where the log has neither. */
  function planAgrees(facts, rules, pool, longest) {
    if (!rules?.current || !longest) return false;
    if (facts.needed && !kernel.agrees(rules.own(longest), facts.needed)) return false;
    if (facts.concurrency) return kernel.agrees(rules.concurrency(pool, longest), facts.concurrency);
    const tokens = tokensOf(facts);
    return !tokens || kernel.agrees(rules.tokensOf(pool, longest), tokens);
  }

  /* Requests with an FP8 cache; null where the log's cache is not known to be wider than that. */
  function fp8Concurrency(facts, rules, pool, longest, fits) {
    const stated = facts.kv_dtype;
    const wide = stated !== undefined && stated !== "auto" && kernel.words.two_byte_kv.includes(stated);
    if (!rules) return wide ? 2 * fits : null;
    const met = Boolean(facts.needed || (facts.concurrency && pool)) &&
      planAgrees(facts, rules, pool, longest);
    return rules.fp8 && (wide || met) ? fits * rules.own(longest) / rules.fp8(longest) : null;
  }

  /* Tokens that an FP8 cache and twice the devices hold where they are not enough, or where nobody knows whether they are. */
  function insufficient({ facts, engine }, rules, { concurrency: fits, longest, pool, changes }) {
    if (fits === null || fits >= 1 || !longest || ![null, "vllm"].includes(engine)) return [];
    const found = [], none = (name) => !changes.some(({ change }) => change === name);
    if (none("kv_dtype")) {
      const halved = fp8Concurrency(facts, rules, pool, longest, fits);
      const guessed = halved === null && rules && [undefined, "auto"].includes(facts.kv_dtype);
      const tokens = Math.floor((guessed ? 2 * fits : halved) * longest);
      if (tokens > fits * longest) found.push({ change: "kv_dtype", value: "fp8", tokens, guessed });
    }
    if (none("tensor_parallel")) {
      const wider = rules?.poolWith ? rules.times(2) : null, known = wider?.rules && pool !== null;
      const freed = known ? wider.rules.poolWith(rules.rows) - rules.poolWith(rules.rows) : 0;
      const tokens = known ? Math.floor(((pool + freed) / wider.rules.own(longest)) * longest) : null;
      found.push({ change: "tensor_parallel", value: wider?.tp || 2 * (facts.tensor_parallel || 1), tokens });
    }
    return found;
  }

  /* What holds more requests than a server that runs, with the requests that it holds then. */
  function forMore(facts, rules, pool, longest, fits, device) {
    const found = [], halved = fp8Concurrency(facts, rules, pool, longest, fits);
    if (halved > fits) found.push({ change: "kv_dtype", value: "fp8", concurrency: halved });
    if (facts.utilization < RAISED && device && pool) {
      const raised = kernel.concurrencyAt(fits, pool, facts.utilization, RAISED, device);
      if (raised > fits) found.push({ change: "utilization", value: RAISED, concurrency: raised });
    }
    return found;
  }

  /* The longest request that fits: the engine's word, our plan's, in proportion, or the tokens it can store. */
  function fittingLength(facts, rules, pool, longest) {
    if (facts.estimated_len !== undefined) return facts.estimated_len;
    if (pool > 0 && planAgrees(facts, rules, pool, longest)) return rules.longest(pool, longest) || null;
    if (facts.needed && pool > 0) return kernel.proportionalLength(longest, pool, facts.needed) || null;
    return facts.storable || tokensOf(facts) || null;
  }

  const tokensOf = (facts) => facts.full_tokens || facts.kv_tokens || null;

  /* Of the pools that are printed as this one, the one that holds the printed tokens if any does: _as_printed() in Python. */
  function asPrinted(pool, tokens, holds) {
    const gib = pool / GIB,
      places = [100, 10000].find((digits) => Math.abs(gib - Math.round(gib * digits) / digits) < 1e-8);
    if (!tokens || !places) return pool;
    const missing = (size) => holds(Math.trunc(size)) - tokens;
    let low = pool - GIB / 2 / places, high = pool + GIB / 2 / places, middle = pool;
    for (let halving = 0; halving < 24; halving++) {
      const beyond = missing(middle);
      if (!beyond) return Math.trunc(middle);
      if (beyond > 0) high = middle;
      else low = middle;
      middle = (low + high) / 2;
    }
    return pool;
  }

  function concurrency(reading, longest, pool, rules) {
    const facts = reading.facts;
    if (facts.concurrency !== undefined) return facts.concurrency;
    if (pool !== null && pool <= 0) return 0;
    if (facts.needed && pool !== null) return Math.max(pool, 0) / facts.needed;
    if (!longest) return null;
    const checked = checks(reading);
    if (pool !== null && planAgrees(facts, rules, pool, longest)) {
      const planned = rules.concurrency(pool, longest);
      if (planned >= 1 || !checked) return planned;
    }
    const tokens = tokensOf(facts) || facts.storable;
    return tokens === undefined || tokens === null || (checked && tokens < longest) ? null : tokens / longest;
  }

  const POOL = ["kv_tokens", "concurrency", "gpu_blocks"];

  const sized = (bytes) =>
    bytes >= Math.floor(GIB / 10)
      ? `${(bytes / GIB).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} GiB`
      : `${
        (bytes / 2 ** 20).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })
      } MiB`;

  /* How a start ended, or null: ended() of kvreport.startup_log.endings. */
  function ended(table, reading, engine = reading.engine) {
    const known = new Map(table.patterns.filter((one) => one.ends).map((one) => [one.name, one]));
    const places = [], pool = [];
    reading.recognised.forEach((one, index) => {
      if (known.has(one.pattern)) places.push(index);
      if (POOL.some((name) => name in one.facts)) pool.push(index);
    });
    if (!places.length || (pool.length && pool[pool.length - 1] > places[places.length - 1])) return null;
    const rank = (index) => {
      const one = known.get(reading.recognised[index].pattern);
      return (one.ends.short ? 2 : 0) + (one.engine ? 1 : 0);
    };
    const chosen = reading.recognised[places.reduce((best, one) => (rank(one) >= rank(best) ? one : best))];
    const { short, remedies } = known.get(chosen.pattern).ends;
    const stops = pool.length > 0 && remedies.includes("less_share");
    const { asked, left } = reading.facts, { sentences } = kernel.words;
    let by = "";
    if (asked !== undefined && left !== undefined && asked > left) {
      by = sentences.log_ended_by.replace("{asked}", sized(asked)).replace("{left}", sized(left))
        .replace("{missing}", sized(asked - left));
    } else if (asked !== undefined) by = sentences.log_ended_asked.replace("{asked}", sized(asked));
    const sentence = sentences[stops ? "log_stopped" : "log_ended"];
    return {
      pattern: chosen.pattern,
      sentence: short ? sentence.replace("{short}", short).replace("{by}", by) : chosen.says,
      stops,
      remedies: remedies.map((name) => [name, table.remedies[name][engine] || table.remedies[name].any]),
    };
  }

  const api = {
    readLog,
    ended,
    spread,
    otherRanks,
    layout,
    diagnose,
    insufficient,
    show,
    explain,
    asPrinted,
  };
  root.kvLogLines = api;
})(typeof globalThis === "object" ? globalThis : this);
