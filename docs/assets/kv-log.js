/* The log reader's page. The log stays in the text field: it is in no address and in no request. */
(function () {
  "use strict";

  const { $, $$, make, count, gib, load, debounce, grid, picker, plural, ignoredNote } = kvreport;
  const MOST_UNKNOWN = 40, MOST_BYTES = 20_000_000;
  const OF_POOL = ["concurrency", "kv_tokens"];
  const FAR = 0.05;
  const SAME_MEMORY = 0.006, MOST_OFFERED = 12; /* as in kvreport.startup_log.diagnose */
  const FEWER_TOKENS = 2048; /* tokens of a step that are tried: kvreport.startup_log.endings */
  const USUAL_REQUESTS = 256;
  const SERVERS = { vllm: "vLLM", sglang: "SGLang" };

  function log(form) {
    const release = form.dataset.kvRuns ? kvreport.ownPolicy() : () => {};
    if (!release) return null;
    const box = $("[data-kv-logged]");
    const base = new URL(form.dataset.kvLog, location.href);
    let table, local; // what recognizes lines, fetched when a log is there
    const example = $("template.kv-example", form).content.textContent;
    const fields = { log: $("textarea", form) };
    const places = Object.fromEntries(
      $$("[data-kv-picker]", form).map((place) => [place.dataset.kvName, place]),
    );
    const unstated = Object.fromEntries(
      Object.entries(places).map(([name, place]) => [name, place.textContent]),
    );
    const named = picker(places.model, base, choose);
    const device = picker(places.gpu, base, choose);
    let turn = 0, unread = [], library = null;

    /* What the reader chose stands in the address; the log does not. */
    async function choose() {
      const state = { model: named.value(), gpu: device.value() };
      const checked = $(".kv-told", box);
      unread = [];
      history.replaceState(history.state, "", location.pathname + kvState.search(state) + location.hash);
      await show();
      if (checked) $(".kv-whole button", box)?.click(); // what Python answered, for what is chosen now
    }

    const slugs = new Map(
      $("template.kv-slugs", form).content.textContent.split(" ").map((slug) => [slug.toLowerCase(), slug]),
    );

    async function restore() {
      const carried = new URLSearchParams(location.hash.slice(1)).get("log"); // from the question box
      if (carried) {
        fields.log.value = carried;
        history.replaceState(history.state, "", location.pathname + location.search);
      }
      const site = location.search ? await kvreport.facts(base).catch(() => null) : null;
      const read = site && kvState.read(site, ["model", "gpu"], [], location.search, true);
      const gpu = read && kvCapacity.gpuOf(site, read.state.gpu);
      unread = read?.ignored || [];
      const chosen = read?.state.model;
      const model = chosen && site.models.find(([slug]) => slug === chosen);
      named.set(model ? chosen : "", model ? model[1] : unstated.model);
      device.set(gpu ? gpu.id : "", gpu ? gpu.name : unstated.gpu);
      show();
    }

    /* Put an answer into its place, with what of the address it does not use. */
    function put(...children) {
      const missed = ignoredNote(unread);
      box.replaceChildren(...children, missed ? make("p", { class: "kv-note" }, missed) : "");
    }

    async function show() {
      const mine = ++turn;
      const text = fields.log.value;
      if (!text) {
        put();
        return;
      }
      try {
        ({ served: table, local } = await load(new URL("log-lines.json", base)));
      } catch (error) {
        put(make("p", { class: "kv-big" }, `The log cannot be read here (${error.message}).`));
        return;
      }
      if (mine !== turn) return;
      if (kvLogLocal.looksLike(local, text)) {
        showLocal(text);
        return;
      }
      const reading = kvLogLines.readLog(table, text);
      if (reading.error) {
        put(
          make("p", { class: "kv-big" }, reading.error),
          (reading.file && (whole("file") || ofCommand())) || "",
        );
        return;
      }
      const stated = reading.facts.model;
      const slug = named.value() ||
        (stated ? slugs.get(stated.replace("/", "--").toLowerCase()) || "" : "");
      let site = null, model = null;
      if (slug || device.value()) {
        try {
          [site, model] = await Promise.all([
            kvreport.facts(base),
            slug ? load(new URL(`models/${slug}.json`, base)) : null,
          ]);
        } catch { /* the log's own numbers remain */ }
        if (mine !== turn) return;
      }
      const gpu = site && device.value() ? kvCapacity.gpuOf(site, device.value()) : null;
      const rules = kvLogLines.layout(reading, site, model, gpu);
      const found = kvLogLines.diagnose(reading, rules, gpu && gpu.usable);
      const end = found.changes.length ? null : kvLogLines.ended(table, reading);
      const total = reading.facts.total_memory || reading.facts.capacity;
      if (end && total) site ||= await kvreport.facts(base).catch(() => null);
      const earlier = rules && !rules.current && gpu
        ? await before(site, model, gpu, reading, found, rules)
        : [];
      if (mine !== turn) return;
      lay(
        reading,
        found,
        compare(reading, found, model, rules),
        earlier,
        notes(reading, found, site, model, rules, gpu),
        [
          ...(end && total && site && !gpu ? alike(site, total) : []),
          ...(end ? remedies(end, reading, site, total, model) : []),
          ...others(kvLogLines.insufficient(reading, rules, found), found.longest),
          ...more(found, reading, model, gpu),
        ],
      );
    }

    /* What the rules of an older release predict of the pool, in the files of the release that the site has, or why not. */
    async function before(site, model, gpu, { facts }, found, { weights }) {
      const release = Number(/^v?\d+\.(\d+)/.exec(facts.engine_version || "")?.[1]);
      const engine = site.engines.find(({ name, label }) => { // "vLLM 0.11 to 0.16"
        const [first, last = first] = (label.match(/\d+\.\d+/g) || []).map((one) => Number(one.slice(2)));
        return name.startsWith("vllm") && first <= release && release <= last;
      });
      const why = `The log is from an older release, ${
        facts.engine_version ? `vLLM ${facts.engine_version}` : "which it does not name"
      }.`;
      const other = facts.weights && Math.abs(weights / facts.weights - 1) > kvKernel.OTHER_WEIGHTS;
      const files = engine && !other &&
        [`engines/${engine.name}.json`, `engines/${engine.name}/${model.slug}.json`];
      const read = files &&
        await Promise.all(files.map((name) => load(new URL(name, base)))).catch(() => null);
      const here = read && kvCapacity.underEngine(site, read[0]);
      const [deployment] = read
        ? kvState.deployments(here, kvCapacity.decided(model, read[1]), kvCapacity.gpuOf(here, gpu.id), {
          tp: facts.tensor_parallel || 1,
          pp: facts.pipeline_parallel,
          dp: facts.data_parallel,
          ep: facts.expert_parallel,
          dcp: facts.context_parallel,
          context: found.longest || model.limit,
          kv: facts.kv_dtype?.startsWith("fp8") ? "fp8" : undefined,
          share: facts.utilization,
          batched: facts.max_batched_tokens,
          seqs: facts.max_seqs,
          eager: facts.eager,
        })
        : [];
      const pool = deployment && Math.max(deployment.pool, 0);
      const listed = site.engines.filter(({ name }) => name.startsWith("vllm")).map(({ label }) => label);
      const said = other
        ? `No KV pool is predicted: the log prints ${
          gib(facts.weights)
        } GiB of weights, and those of ${model.name} as released have ${
          gib(weights)
        } GiB per GPU. Choose the model in the format of the log.`
        : pool === undefined
        ? `No KV pool is predicted: this page has rules of ${listed.join(", ")}. ${
          form.dataset.kvRuns ? "“Check every number with Python”" : "The command kvreport log"
        } has the rules of every release.`
        : `By the rules of ${engine.label}, the KV pool has ${gib(pool)} GiB per GPU${
          facts.kv_pool > 0
            ? `. The log prints ${gib(facts.kv_pool)} GiB, so the estimate differs by ${
              ((pool / facts.kv_pool - 1) * 100).toFixed(1).replace("-", "−")
            }%.`
            : "."
        }`;
      return [
        make("h2", {}, "The KV pool by the rules of this release"),
        make("p", { "data-kv-before": "" }, `${why} ${said}`),
      ];
    }

    /* The accelerators with the memory that a message prints: one press chooses one. */
    function alike(site, total) {
      const found = site.gpus.filter(({ usable }) => Math.abs(usable / total - 1) <= SAME_MEMORY);
      if (!found.length || found.length > MOST_OFFERED) return [];
      const pick = ({ id, name }) => {
        device.set(id, name);
        choose();
      };
      return [
        make(
          "p",
          {},
          `The log prints ${gib(total)} GiB of memory. GPUs that have it: `,
          ...found.flatMap((gpu) => [
            make("button", { type: "button", class: "kv-chip", onclick: () => pick(gpu) }, gpu.name),
            " ",
          ]),
          "Choose yours.",
        ),
      ];
    }

    /* What to try after an end, in the words of its engine or of both that print it, with values to begin with. */
    function remedies(end, { engine, facts }, site, total, model) {
      if (!end.remedies.length) return [];
      const missing = facts.asked > facts.left ? facts.asked - facts.left : 0;
      const usual = facts.engine_version ? undefined : site?.engine.utilization;
      const step = Math.max(FEWER_TOKENS, model?.least_step || 0); // a step holds the model's longest item
      const values = (server) => {
        const shares = { sglang: facts.mem_fraction, vllm: facts.utilization ?? usual };
        const share = shares[server];
        const fewer = kvKernel.words.fewer_requests.find((one) => one < (facts.max_seqs ?? USUAL_REQUESTS));
        const lower = Math.floor((share - missing / total) * 100) / 100;
        return {
          less_share: missing && lower > 0 && ` to ${lower} (${gib(missing)} GiB less than ${share})`,
          smaller_steps: !(facts.max_batched_tokens <= step) && ` to ${step}`,
          fewer_requests: fewer && ` to ${fewer}`,
        };
      };
      const said = (server) => {
        const given = values(server), devices = 2 * (facts.tensor_parallel || 1);
        return end.remedies.map(([name]) => {
          const words = table.remedies[name], text = words[server] || words.any;
          return name === "more_devices" ? text.replace(/\)$/, ` ${devices})`) : text + (given[name] || "");
        });
      };
      const one = (server) => make("ul", {}, ...said(server).map((text) => make("li", {}, text)));
      return [
        make("h2", {}, "What to try, one at a time"),
        ...(engine ? [one(engine)] : Object.entries(SERVERS).flatMap(([server, name]) => [
          make("p", {}, `With ${name}:`),
          one(server),
        ])),
        make(
          "p",
          { class: "kv-note" },
          "These values are where to begin, and are not calculated for your model. Paste the whole log and choose the model and the GPU to have the numbers checked.",
        ),
      ];
    }

    /* An FP8 cache and more devices, with the tokens that the cache holds then. */
    const others = (some, longest) =>
      !some.length ? [] : [
        make("h2", {}, "Other changes, and the tokens that the cache holds with them"),
        make(
          "ul",
          {},
          ...some.map(({ change: name, value, tokens, guessed }) =>
            make(
              "li",
              {},
              `${change({ change: name, value })}: ${
                tokens === null
                  ? "choose the model and the GPU to get its number"
                  : `about ${count(tokens)} of the ${count(longest)} tokens of one request${
                    tokens < longest ? ", so also lower the context to that" : ", which is enough"
                  }${guessed ? " (if the cache has 16 bits now)" : ""}`
              }`,
            )
          ),
        ),
      ];

    /* What holds more requests on a server that starts, and the estimate of the same case, which has further changes. */
    function more(found, { facts }, model, gpu) {
      if (found.changes.length || !(found.concurrency >= 1)) return [];
      const state = {
        model: model?.slug,
        gpu: gpu?.id,
        tp: facts.tensor_parallel,
        context: found.longest,
        kv: facts.kv_dtype === "fp8" ? "fp8" : undefined,
        share: facts.utilization,
      };
      const estimate = new URL(kvState.search(state) || "?", kvreport.root).href;
      return [
        make("h2", {}, "To serve more requests"),
        found.more.length ? make("ul", {}, ...found.more.map((one) => make("li", {}, line(one)))) : null,
        make(
          "p",
          { class: "kv-note" },
          found.more.length
            ? "A smaller weight format and more GPUs hold more, too. "
            : "An FP8 cache, a smaller weight format and more GPUs hold more. ",
          model && gpu
            ? make("a", { href: estimate }, "Try these changes on the estimate of this case")
            : "Choose the model and the GPU to get the estimate of this case, with which changes can be tried.",
        ),
      ].filter(Boolean);
    }

    /* Where a start command is read if no library of this site reads the file. */
    const ofCommand = () =>
      make(
        "p",
        {},
        make("a", { href: kvreport.root }, "The front page"),
        " reads the start command of one server.",
      );

    /* --- the whole of it: the same code as the command's, in a worker -------------------------------------- */

    /* What only the library can say: other engines, older releases, every layout. Nothing is fetched before a click. */
    function whole(kind = "log") {
      if (!form.dataset.kvRuns) return null;
      const place = make("div", { class: "kv-whole" });
      const button = make(
        "button",
        { type: "button", class: "kv-button", onclick: () => check(place, button, kind) },
        kind === "file" ? "Find its servers, and whether they start" : "Check every number with Python",
      );
      const loads = library?.worker ? "" : ` It is loaded from this site (${form.dataset.megabytes} MB).`;
      place.append(
        button,
        make(
          "p",
          { class: "kv-note" },
          kind === "file"
            ? `The answer of kvreport preflight.${loads}`
            : `The answer of kvreport log, for every engine, release and layout.${loads}`,
        ),
      );
      return place;
    }

    async function check(place, button, kind) {
      const mine = turn;
      button.disabled = true;
      try {
        library ||= kvreport.library(form, new URL(form.dataset.kvPython, location.href).href);
        const { call } = await library.start();
        library.say("Calculating …");
        const told = await call({
          [kind]: { log: fields.log.value, model: named.value() || "", gpu: device.value() || "" },
        });
        if (mine !== turn) return;
        place.replaceChildren(
          make("h2", {}, kind === "file" ? "Servers of this file" : "Checked with Python"),
          make("pre", { class: "kv-told", tabindex: "0" }, told.join("\n")),
        );
      } catch (error) {
        if (mine === turn) place.replaceChildren(kvreport.fault(error));
      } finally {
        button.disabled = false;
        if (mine === turn) library.say("");
      }
    }

    /* A start of llama.cpp or Ollama: where its bytes are, and what to change. */
    function showLocal(text) {
      const start = kvLogLocal.read(local, text);
      const failed = kvLogLines.readLog(table, start.failures.join("\n"));
      const end = kvLogLines.ended(
        table,
        { recognised: [], ...failed },
        start.ollama ? "ollama" : "llama_cpp",
      );
      const children = [make("p", { class: "kv-big" }, kvLogLocal.headline(local, start, end))];
      const said = kvLogLocal.changes(local, start, end);
      if (said.length) {
        children.push(
          make("h2", {}, "What to change"),
          make("ul", {}, ...said.map((one) => make("li", {}, one))),
        );
      }
      const found = kvLogLocal.rows(start);
      if (found.length) {
        children.push(
          make("h2", {}, "Where the memory goes"),
          grid("Buffers that llama.cpp printed, by device", kvLogLocal.heads, found),
        );
      }
      children.push(
        make(
          "p",
          { class: "kv-note" },
          "kvreport log --model NAME compares the cache with the formula; kvreport estimate --engine llama-cpp predicts every buffer.",
        ),
      );
      const every = whole();
      if (every) children.push(every);
      const chosen = [[named, "model"], [device, "GPU"]].filter(([one]) => one.value()).map(([, name]) =>
        name
      );
      if (chosen.length) {
        children.splice(
          1,
          0,
          make("p", { class: "kv-note" }, `Not used for this log: the ${chosen.join(" and the ")}.`),
        );
      }
      put(...children);
    }

    /* Flags of the log that change memory and that the published data cannot follow. */
    function ignored(facts) {
      const flags = kvKernel.words.serve.vllm, names = [];
      if (facts.block_tokens !== undefined) names.push(`${flags.block_size} ${facts.block_tokens}`);
      if (facts.quantization !== undefined && facts.quantization !== "None") {
        names.push(`${flags.weights} ${facts.quantization}`);
      }
      return names;
    }

    function compare(reading, found, model, rules) {
      const rows = [];
      const facts = reading.facts;
      const add = (name, predicted) => rows.push([name, facts[name], predicted]);
      if (!model || !rules) return rows;
      if (facts.weights && rules.weights) add("weights", rules.weights);
      if (rules.current && found.pool > 0 && found.longest) {
        const request = rules.own(found.longest);
        const pool = kvLogLines.asPrinted(
          found.pool,
          facts.kv_tokens,
          (size) => rules.tokensOf(size, found.longest),
        );
        if (facts.concurrency) add("concurrency", rules.concurrency(pool, found.longest));
        if (facts.kv_tokens) add("kv_tokens", rules.tokensOf(pool, found.longest));
        if (facts.needed) add("needed", request);
      }
      const other = facts.weights && Math.abs(rules.weights / facts.weights - 1) > kvKernel.OTHER_WEIGHTS;
      if (rules.poolWith && rules.current && found.pool > 0 && facts.kv_pool > 0 && rules.weights && !other) {
        add("kv_pool", Math.max(rules.poolWith(rules.rows), 0));
      }
      return rows;
    }

    function notes(reading, found, site, model, rules, gpu) {
      const said = [], { sentences } = kvKernel.words;
      if (reading.doubtful.length) {
        said.push(sentences.log_doubtful.replace("{lines}", reading.doubtful.join(", ")));
      }
      if (found.beyond !== null) {
        said.push(
          sentences.log_beyond_memory.replace("{pool}", gib(found.beyond))
            .replace("{memory}", gib(reading.facts.total_memory || gpu.usable)),
        );
      }
      if (!model) {
        said.push(
          reading.facts.model
            ? `The catalog does not have ${reading.facts.model}. Choose the original model.`
            : "The log does not name its model. Choose the model to check the numbers.",
        );
      }
      if (!gpu) said.push("Choose the GPU to predict the size of the KV pool.");
      if (model && !["vllm", null].includes(reading.engine)) {
        said.push("This page checks the block plans of vLLM only. kvreport log also checks other engines.");
      }
      const spread = kvLogLines.spread(reading.facts), other = kvLogLines.otherRanks(reading.facts, gpu);
      if (model && other) said.push(`No block plan: gpu: ${other}.`);
      else if (model && !rules && spread.length && ["vllm", null].includes(reading.engine)) {
        said.push(
          `This page has no numbers for the layout of the log (${
            spread.join(", ")
          }). kvreport log checks the whole log.`,
        );
      }
      if (rules && !rules.current) {
        said.push(
          `The log is from an older release. The block plan is checked by the rules of ${site.engine.label} only. kvreport log has the rules of the release in the log.`,
        );
      } else if (rules) {
        const missed = ignored(reading.facts);
        said.push(
          `Computed with the rules of ${site.engine.label} and with the context, cache type, layout, memory share, batched tokens and graphs from the log. Settings that the log does not state are the engine’s defaults.`,
        );
        if (missed.length) {
          said.push(
            `This page does not take into account: ${
              missed.join(", ")
            }. kvreport log takes the block size into account. The weights are as released.`,
          );
        }
      }
      return said;
    }

    function lay(reading, found, compared, earlier, remarks, advice) {
      const children = [make("p", { class: "kv-big" }, headline(found, reading))];
      const said = new Set(reading.recognised.map((one) => one.pattern));
      const about = Object.entries(table.refusals).reverse().find(([name]) => said.has(name));
      if (about && !location.pathname.endsWith(about[1])) {
        const href = new URL(about[1], kvreport.root).href;
        children.push(make("p", {}, make("a", { href }, "What this error means and how to fix it")));
      }
      if (!reading.recognised.length) {
        children.push(
          make(
            "p",
            {},
            "No line was understood. This page reads start-up logs of vLLM, SGLang, TensorRT-LLM, llama.cpp and Ollama, and errors of MLX.",
          ),
        );
      }
      if (found.changes.length) {
        children.push(
          make("h2", {}, "What to change"),
          make("ul", {}, ...found.changes.map((one) => make("li", {}, line(one)))),
        );
      }
      children.push(...advice, ...earlier);
      if (compared.length) {
        children.push(
          make("h2", {}, "Compared with the formula"),
          grid(
            "The log’s numbers and those of the formula",
            ["Quantity", "Log", "Formula", "Difference"],
            compared.map(([name, stated, predicted]) => [
              OF_POOL.includes(name)
                ? `${table.facts[name].label} (${kvKernel.words.sentences.log_from_pool})`
                : table.facts[name].label,
              shown(name, stated),
              shown(name, predicted),
              stated
                ? `${predicted >= stated ? "+" : "−"}${Math.abs((predicted / stated - 1) * 100).toFixed(1)}%${
                  Math.abs(predicted / stated - 1) > FAR ? `: ${kvKernel.words.sentences.log_far_apart}` : ""
                }`
                : "",
            ]),
          ),
          make(
            "p",
            { class: "kv-note" },
            `The column “log” has the numbers that the engine printed. In rows with “${kvKernel.words.sentences.log_from_pool}”, the formula divides the pool that the log prints. The cache pool is predicted from the flags and the GPU, so tokens computed from the two pools differ.`,
          ),
        );
      }
      if (found.shorter.length) {
        children.push(
          make("h2", {}, "If requests are shorter"),
          grid(
            `Requests that fit, by their length${found.linear ? ", if every token costs the same" : ""}`,
            ["Tokens per request", "Requests"],
            found.shorter.map(([length, fit]) => [count(length), count(fit)]),
          ),
        );
      }
      if (reading.recognised.length) {
        const lines = new Map(), said = new Set();
        for (const one of reading.recognised) {
          if (said.has(one.says)) continue;
          said.add(one.says);
          if (!lines.has(one.number)) lines.set(one.number, { text: one.text, says: [] });
          lines.get(one.number).says.push(one.says);
        }
        children.push(
          make("h2", {}, "Line by line"),
          make(
            "dl",
            { class: "kv-lines-read" },
            ...[...lines].flatMap(([number, one]) => [
              make(
                "dt",
                {},
                make("small", {}, `line ${number} `),
                make("code", {}, one.text.length > 220 ? `${one.text.slice(0, 220)}…` : one.text),
              ),
              ...one.says.map((text) => make("dd", {}, text)),
            ]),
          ),
        );
      }
      children.push(...remarks.map((text) => make("p", { class: "kv-note" }, text)));
      const every = whole();
      if (every) children.push(every);
      if (reading.starts > 1) {
        const line = reading.recognised.length ? reading.recognised[0].number : 1;
        const said =
          `The log contains ${reading.starts} starts. kvreport reads the last one that ends, from line`;
        children.push(make("p", { class: "kv-note" }, `${said} ${line}.`));
      }
      if (reading.unknown.length) {
        children.push(
          make(
            "details",
            { class: "kv-unknown" },
            make(
              "summary",
              {},
              `Not understood, and not used: ${plural(reading.unknown.length, "line|lines")}`,
            ),
            make(
              "ul",
              {},
              ...reading.unknown.slice(0, MOST_UNKNOWN).map(([number, text]) =>
                make("li", {}, make("small", {}, `line ${number} `), make("code", {}, text.slice(0, 200)))
              ),
            ),
            reading.unknown.length > MOST_UNKNOWN
              ? make("p", {}, `… and ${count(reading.unknown.length - MOST_UNKNOWN)} more.`)
              : null,
          ),
        );
      }
      put(...children);
      box.kvFound = found;
      box.kvCompared = compared;
    }

    function refused({ facts, recognised }, concurrency) {
      const { sentences, no_room: noRoom, names_one_model: kinds } = kvKernel.words;
      for (const kind of kinds) {
        const named = recognised.filter((one) => one.pattern === kind && one.facts.model)
          .map((one) => one.facts.model);
        const other = named.find((one) => one !== named[0]);
        if (other) return sentences.log_mixed.replace("{first}", named[0]).replace("{second}", other);
      }
      if (facts.state_blocks !== undefined) {
        const name = facts.max_seqs && facts.max_seqs > facts.state_blocks ? "log_states" : "log_no_states";
        return sentences[name].replaceAll("{seqs}", count(facts.max_seqs || 0))
          .replaceAll("{states}", count(facts.state_blocks));
      }
      if (concurrency === null && recognised.some((one) => noRoom.includes(one.pattern))) {
        return sentences.log_no_room;
      }
      const { free_memory: free, total_memory: total, requested: wanted } = facts;
      if (concurrency !== null || !free || !total || !wanted || free >= wanted) return null;
      return sentences.log_not_free.replace("{wanted}", gib(wanted)).replace("{free}", gib(free))
        .replace("{share}", (Math.floor(free / total * 100) / 100).toFixed(2));
    }

    function headline(found, reading) {
      if (found.pool !== null && found.pool <= 0) {
        return `The server does not start: the weights and the engine’s reserve leave ${
          gib(found.pool)
        } GiB for the cache.`;
      }
      const stopped = refused(reading, found.concurrency);
      if (stopped !== null) return stopped;
      const end = kvLogLines.ended(table, reading);
      const untold = found.concurrency === null || found.longest === null;
      if (end && (untold || end.stops)) return end.sentence;
      const { sentences } = kvKernel.words;
      if (found.passed) return sentences.log_passed.replace("{longest}", count(found.longest));
      const tokens = reading.facts.full_tokens || reading.facts.kv_tokens;
      if (untold && tokens) {
        const [short, middle, long] = [8, 32, 128].map((length) =>
          count(Math.trunc(tokens / (length * 1024)))
        );
        return sentences.log_tokens.replace("{tokens}", count(tokens)).replace("{short}", short)
          .replace("{middle}", middle).replace("{long}", long);
      }
      if (untold) return "The log does not show how many requests fit.";
      if (found.shorterRuns) {
        return sentences.log_runs_shorter.replace("{tokens}", count(tokens)).replace(
          "{longest}",
          count(found.longest),
        );
      }
      const times = `${found.concurrency.toFixed(2)}×`;
      if (found.concurrency < 1) {
        return `${times}: one request of ${count(found.longest)} tokens does not fit.`;
      }
      const whole = Math.trunc(found.concurrency);
      const ranks = reading.facts.data_parallel || 1;
      const each = ranks > 1 ? ` on each of ${ranks} data-parallel ranks` : "";
      if (whole === 1) return `${times}: one request of ${count(found.longest)} tokens fits${each}.`;
      return `${times}: ${count(whole)} requests of ${count(found.longest)} tokens fit at once${each}.`;
    }

    const change = ({ change: name, value }) =>
      kvKernel.words.changes[name].replaceAll("{value}", name === "max_model_len" ? count(value) : value);
    const line = (one) => change(one) + (one.concurrency === null ? "" : `: ${one.concurrency.toFixed(2)}×`);
    const shown = (
      name,
      value,
    ) => (table.facts[name].unit === "bytes"
      ? `${gib(value)} GiB`
      : Number.isInteger(value)
      ? count(value)
      : value.toFixed(2));

    const typed = debounce(show, 120);
    fields.log.addEventListener("input", typed);
    for (const button of $$("[data-kv-any]", form)) {
      button.addEventListener("click", () => {
        const name = button.dataset.kvAny;
        (name === "gpu" ? device : named).set("", unstated[name]);
        choose();
      });
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    fields.log.addEventListener("dragover", (event) => event.preventDefault());
    fields.log.addEventListener("drop", async (event) => {
      const file = event.dataTransfer.files[0];
      if (!file) return;
      event.preventDefault();
      const whole = file.size <= MOST_BYTES;
      fields.log.value = whole ? await file.text() : "";
      if (whole) return void show();
      turn += 1;
      const said = `${file.name} has over ${
        count(MOST_BYTES / 1e6)
      } MB: the start of the log, up to the first request, is enough.`;
      put(make("p", { class: "kv-big" }, said));
    });
    $("[data-kv-example]", form).addEventListener("click", () => {
      fields.log.value = example;
      show();
    });
    restore();
    return { restore, release };
  }

  kvreport.log = log;
})();
