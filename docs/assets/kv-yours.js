/* The page "Your model": files or a Hub id go to Python in a worker, answers come back as objects.
   Nothing is downloaded before the first click, and nothing is sent anywhere but to the Hub. */
(function () {
  "use strict";

  const { $, $$, make, command, count, definitions, gib, grid, tokens, memoryBar, plural, debounce } =
    kvreport;
  const HEADER_BYTES = 64 * 2 ** 20; /* of a file of tensors only the header is read */
  const TEXT_BYTES = 8 * 2 ** 20; /* of a config or an index, as the library takes */
  const CONTEXTS = [2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576];
  const LIMITS = {
    kv_pool: "KV pool",
    state_slots: "state slots",
    context: "context limit of the model",
  };
  const REFUSED = ["engine_does_not_run", "format_not_supported"];
  const GGUF = /-GGUF$/i; /* a repository of GGUF files, as --fetch tells it */
  const STEP_BYTES = 4 << 20; /* of a GGUF file read before Python looks for the end of its header */
  const REPOSITORY = /^[A-Za-z0-9][\w.-]{0,95}\/[A-Za-z0-9][\w.-]{0,95}$/;

  function yours(form) {
    const release = kvreport.ownPolicy();
    if (!release) return null;

    const box = $("[data-kv-answer]");
    const base = new URL(form.dataset.kvYours, location.href).href;
    const library = kvreport.library(form, base), { say } = library;
    const readable = form.dataset.files.split(" ");
    const fields = form.elements;
    let dropped = new Map(), turn = 0, asking = 0;

    /* --- What the reader brings -------------------------------------------------------------------------- */

    async function fromHub(asked) {
      const [id, mix] = asked.split(":");
      if (!REPOSITORY.test(id) || (mix !== undefined && !GGUF.test(id))) {
        throw new Error(
          `A Hugging Face ID has the form org/name, or org/name-GGUF:Q4_K_M; found “${asked}”.`,
        );
      }
      const hub = form.dataset.hub;
      const listing = await ask(`${hub}/api/models/${id}/revision/main`, id);
      const { sha, siblings } = await listing.json();
      const names = siblings.map((one) => one.rfilename);
      if (GGUF.test(id)) return fromGguf(asked, id, sha, names);
      const wanted = readable.filter((name) => names.includes(name));
      if (!wanted.includes("config.json") && !wanted.includes("params.json")) {
        const gguf = names.some((name) => name.endsWith(".gguf"));
        throw new Error(
          `${id} has no config.json.` +
            (gguf ? " It has GGUF files: choose one under Files." : " Paste a config.json instead."),
        );
      }
      const content = await Promise.all(wanted.map(async (name) => {
        try {
          const answer = await ask(`${hub}/${id}/resolve/${sha}/${name}`, id);
          return [name, new Uint8Array(await answer.arrayBuffer())];
        } catch (error) {
          // The index of the weights is only compared with; a large one lies on another host.
          if (name.endsWith(".index.json")) return null;
          throw error;
        }
      }));
      return { files: Object.fromEntries(content.filter(Boolean)), name: id };
    }

    /* The headers of the file that --fetch would take of a GGUF repository: all of its parts, and no more of them. */
    async function fromGguf(asked, id, revision, names) {
      const { call } = await library.start();
      const files = {};
      for (const part of await call({ parts: { repository: asked, files: names } })) {
        say(`Reading the header of ${part} …`);
        const path = part.split("/").map(encodeURIComponent).join("/");
        const address = `${form.dataset.hub}/${id}/resolve/${revision}/${path}`;
        const first = Object.keys(files).length === 0;
        files[part.split("/").pop()] = await header(address, id, part, first ? STEP_BYTES : STEP_BYTES / 16);
      }
      return { files, name: asked, revision };
    }

    /* The beginning of a file, up to where Python says that its header ends; the rest is not downloaded. */
    async function header(address, id, name, step) {
      const { call } = await library.start();
      const stop = new AbortController();
      const reader = (await ask(address, id, stop.signal)).body.getReader();
      const chunks = [];
      try {
        for (let have = 0, wanted = step;;) {
          const { value, done } = await reader.read();
          if (value) {
            chunks.push(value);
            have += value.length;
          }
          if (have < wanted && !done) continue;
          const bytes = new Uint8Array(await new Blob(chunks).arrayBuffer());
          const length = await call({ header: { name, first: bytes } });
          if (length !== null) return bytes.slice(0, length);
          if (done || have > HEADER_BYTES) throw new Error(`${name} has no whole GGUF header.`);
          wanted = 2 * have;
        }
      } finally {
        stop.abort();
      }
    }

    /* What to do where the Hub does not answer. */
    const instead = (id) => (GGUF.test(id) ? "choose the file under Files" : "paste its config.json");

    async function ask(address, id, signal) {
      let answer;
      try {
        answer = await fetch(address, { credentials: "omit", referrerPolicy: "no-referrer", signal });
      } catch {
        throw new Error(`huggingface.co cannot be reached from this browser: ${instead(id)} instead.`);
      }
      if (answer.ok) return answer;
      if (answer.status === 401 || answer.status === 403) {
        throw new Error(
          `${id} is gated or private, or does not exist. If you have access to it: ${instead(id)}.`,
        );
      }
      if (answer.status === 404) throw new Error(`${id} is not on huggingface.co under this name.`);
      if (answer.status === 429) {
        throw new Error("huggingface.co limits requests at the moment. Try again later.");
      }
      throw new Error(`huggingface.co answers with status ${answer.status} for ${id}.`);
    }

    async function fromFiles() {
      const files = {};
      for (const file of dropped.values()) {
        const tensors = /\.(gguf|safetensors)$/i.test(file.name);
        if (!tensors && file.size > TEXT_BYTES) {
          dropped.delete(file.name); // what is pasted next is answered without it
          throw new Error(
            `${file.name} has over ${TEXT_BYTES / 2 ** 20} MiB: a config or an index is smaller.`,
          );
        }
        const part = tensors ? file.slice(0, HEADER_BYTES) : file;
        files[file.name] = new Uint8Array(await part.arrayBuffer());
      }
      const text = fields.config.value.trim();
      if (text) files["config.json"] = new TextEncoder().encode(text);
      if (!Object.keys(files).length) throw new Error("Paste a config.json, or choose files.");
      return { files, name: "" };
    }

    async function take(files) {
      dropped = new Map();
      fields.config.value = "";
      for (const file of files) {
        if (file.name === "config.json" && file.size <= TEXT_BYTES) fields.config.value = await file.text();
        else dropped.set(file.name, file);
      }
      await calculate(fromFiles);
    }

    async function calculate(source) {
      const mine = ++turn;
      box.replaceChildren();
      say("Reading …");
      try {
        const given = await source();
        const { call } = await library.start();
        say("Calculating …");
        const model = await call({ read: { ...given, assume_defaults: fields.assume.checked } });
        if (mine === turn) await show(model);
      } catch (error) {
        if (mine === turn) box.replaceChildren(kvreport.fault(error));
      } finally {
        if (mine === turn) say("");
      }
    }

    /* --- The answer ---------------------------------------------------------------------------------------- */

    async function show(model) {
      await kvreport.script("kv-picker.js");
      const controls = choices(model);
      const chosen = device(model, controls);
      const result = make("div", { class: "kv-yours-part" });
      const table = make("div", { class: "kv-yours-part" });
      box.replaceChildren(
        make("h2", {}, model.name),
        facts(model),
        assumed(model),
        controls,
        result,
        table,
        ...details(model),
      );
      units();
      const read = () =>
        Object.fromEntries([
          ["gpu", chosen()],
          ...$$("select", controls).map((field) => [field.name, field.value]),
        ]);
      const start = JSON.stringify({ ...read(), gpu: form.dataset.gpu });
      let ignored = recall(model, controls);
      const update = async () => {
        const { ask } = await library.start();
        const mine = ++asking;
        const own = read();
        keep(own, JSON.parse(start));
        const options = { context_tokens: Number(own.context), engine: own.engine };
        if (own.weights) options.weights = own.weights;
        if (own.kv) options.kv = own.kv;
        box.setAttribute("aria-busy", "true");
        const one = ask("estimate", { ...options, gpu: own.gpu, tensor_parallel: Number(own.tp) }).catch((
          error,
        ) => error);
        const all = ask("gpus", options).catch((error) => error);
        const answer = await one;
        if (mine !== asking) return;
        // The rows of every GPU take longer (16 times as long with llama.cpp); those of before answer another question.
        table.replaceChildren();
        result.replaceChildren(
          kvreport.ignoredNote(ignored) || "",
          ...(answer instanceof Error ? [fault(answer)] : estimate(answer, model, own)),
        );
        ignored = [];
        units();
        const rows = await all;
        if (mine !== asking) return;
        box.removeAttribute("aria-busy");
        table.replaceChildren(...(rows instanceof Error ? [] : everyGpu(rows, own)));
        units();
      };
      controls.addEventListener("change", debounce(update, 50));
      controls.addEventListener("chosen", update);
      await update();
      box.querySelector("h2").scrollIntoView({ block: "start", behavior: "smooth" });
    }

    /* The accelerator is found by typing, as on the other pages. */
    function device(model, controls) {
      const { gpus } = model.choices;
      const asked = new URLSearchParams(location.search).get("gpu");
      const [id, name] = gpus.find(([one]) => one === asked) ||
        gpus.find(([one]) => one === form.dataset.gpu) || gpus[0];
      const place = $("[data-kv-picker]", controls);
      place.dataset.kvValue = id;
      place.textContent = name;
      const catalog = new URL(form.dataset.catalog, location.href);
      const one = kvreport.picker(place, catalog, () => controls.dispatchEvent(new Event("chosen")));
      return () => one.value();
    }

    /* What an address says of the fields; returns what of it is not used. A model that came as a file has no address to
       share. */
    function recall(model, controls) {
      const selects = $$("select", controls);
      const options = selects.map((field) => [field.name, [...field.options].map((one) => one.value)]);
      const gpus = model.choices.gpus.map(([id]) => id);
      const { state, ignored } = kvreport.readState({ hub: null, gpu: gpus, ...Object.fromEntries(options) });
      for (const field of selects) if (state[field.name]) field.value = state[field.name][0];
      return ignored;
    }

    function keep(own, start) {
      const asked = Object.entries(own).filter(([name, value]) => value !== start[name]);
      const hub = new URLSearchParams(location.search).get("hub");
      kvreport.writeState({ ...(hub ? { hub } : {}), ...Object.fromEntries(asked) }, true);
    }

    const units = () => kvreport.units();
    const { fault } = kvreport;
    const billions = (n) => n >= 1e9 ? `${(n / 1e9).toPrecision(3)} B` : `${(n / 1e6).toPrecision(3)} M`;

    function facts(model) {
      const note = (text) => make("small", {}, ` ${text}`);
      return definitions("kv-facts", [
        ["Architecture", model.architecture],
        ["Parameters", billions(model.parameters), note(`${count(model.parameters)} exactly`)],
        [
          "Active parameters",
          billions(model.active_parameters),
          model.experts && note(`${model.experts[0]} of ${model.experts[1]} experts per token`),
        ],
        ["Context limit (tokens)", tokens(model.context_tokens)],
        ["Weight format", model.weight_format],
      ]);
    }

    function assumed(model) {
      const list = (title, items) =>
        items.length
          ? make(
            "div",
            { class: "kv-assumed" },
            make("strong", {}, title),
            make("ul", {}, ...items.map((text) => make("li", {}, text))),
          )
          : null;
      const parts = [
        list("Assumed", model.assumptions),
        list("Keys of the config that were not read", model.not_read),
        list("Notes", model.notes),
      ].filter(Boolean);
      return make(
        "div",
        {},
        ...(parts.length
          ? parts
          : [make("p", { class: "kv-note" }, "Nothing was assumed: every dimension is in the files.")]),
      );
    }

    function choices(model) {
      const { engines, weights, kv } = model.choices;
      const field = (name, label, options, value) =>
        make(
          "label",
          {},
          label,
          make(
            "select",
            { name },
            ...options.map(([key, text]) =>
              make("option", { value: key, selected: String(key) === String(value) }, text)
            ),
          ),
        );
      const lengths = [
        ...new Set([...CONTEXTS.filter((n) => n < model.context_tokens), model.context_tokens]),
      ];
      const usual = lengths.filter((n) => n <= 8192).pop() || lengths[0];
      return make(
        "div",
        { class: "kv-controls" },
        make(
          "div",
          { class: "kv-entry" },
          make("label", { for: "kv-y-gpu" }, "GPU or accelerator"),
          make("a", {
            "data-kv-picker": "gpus",
            "data-kv-name": "gpu",
            "data-kv-id": "kv-y-gpu",
            "data-kv-label": "GPUs and accelerators",
          }),
        ),
        field("tp", "GPUs (tensor parallel)", [1, 2, 4, 8, 16].map((n) => [n, String(n)]), 1),
        field("context", "Context per request (tokens)", lengths.map((n) => [n, tokens(n)]), usual),
        field("engine", "Engine and the release of its rules", engines, engines[0][0]),
        weights.length ? field("weights", "Weight format", [["", "As in the files"], ...weights], "") : null,
        kv.length ? field("kv", "KV cache format", [["", "Engine default"], ...kv], "") : null,
      );
    }

    function estimate(answer, model, own) {
      const gpu = model.choices.gpus.find(([id]) => id === own.gpu)[1];
      const where = `${own.tp === "1" ? "one" : `${own.tp} ×`} ${gpu}`;
      const length = `${tokens(answer.context_tokens)} tokens`;
      const requests = answer.max_concurrent_requests;
      const { budget } = answer;
      const why = answer.verdict_reason || kvKernel.words.no_request[answer.verdict]?.[1] ||
        answer.verdict.replaceAll("_", " ");
      const refused = REFUSED.includes(answer.verdict);
      const sentence = requests
        ? [
          make("strong", {}, plural(requests, "request|requests")),
          ` of ${length} ${requests === 1 ? "fits" : "fit"} on ${where}.`,
        ]
        : [
          refused ? `${model.name} does not run on ${where}: ` : `No request of ${length} fits on ${where}: `,
          make("strong", {}, why),
          ".",
        ];
      const missing = answer.shortfall_bytes ? ` Short by ${gib(answer.shortfall_bytes)} GiB per GPU.` : "";
      const left = Math.max(
        0,
        budget.total_bytes - budget.weights - budget.activations - budget.non_framework - budget.graphs -
          budget.kv_pool_bytes,
      );
      const parts = [
        ["weights", "Weights", budget.weights],
        ["reserve", "Activations and graphs", budget.activations + budget.graphs],
        ["none", "Outside the framework", budget.non_framework],
        ["cache", "KV pool", budget.kv_pool_bytes],
        ["free", "Not used", left],
      ];
      const flags = [
        `--gpu ${own.gpu}`,
        own.tp === "1" ? "" : `--tensor-parallel ${own.tp}`,
        `--context ${own.context}`,
        own.weights && `--weights ${own.weights}`,
        own.kv && `--kv ${own.kv}`,
        own.engine === "vllm" ? "" : `--engine ${own.engine}`,
      ];
      const again = command(["kvreport estimate", model.source, ...flags].filter(Boolean).join(" "));
      const big = make("p", { class: "kv-big" }, ...sentence, missing);
      if (refused) return [big, again];
      return [
        big,
        budget.weights <= budget.total_bytes
          ? memoryBar(
            `Memory of one ${gpu}`,
            parts,
            budget.total_bytes,
            `Memory per GPU: ${gib(budget.total_bytes)} GiB usable`,
          )
          : make(
            "p",
            { class: "kv-note" },
            `Weights need ${gib(budget.weights)} GiB per GPU; ${gib(budget.total_bytes)} GiB is usable.`,
          ),
        definitions("kv-facts", [
          ["Stored weights per GPU (GiB)", gib(answer.weight_bytes_per_gpu)],
          ["KV cache per token (bytes)", perToken(answer, model)],
          [`KV cache per request of ${length} (GiB)`, gib(answer.kv_bytes_per_request_per_gpu, 3)],
          ["Longest context that fits (tokens)", count(answer.max_context_tokens)],
          ["Limited by", limit(answer, answer)],
        ]),
        again,
        byContext(answer, where),
      ];
    }

    /* Layers with windows keep nothing more of a request that is longer than the longest of them. */
    function perToken({ kv_bytes_per_token_per_gpu: bytes }, { layers }) {
      const windows = layers.flatMap(({ caches }) => caches.map(({ window, chunk }) => window || chunk || 0));
      const longest = Math.max(...windows);
      return bytes || !longest ? count(bytes) : `0 beyond the window of ${tokens(longest)} tokens`;
    }

    const tableOf = (caption, heads, rows) => grid(caption, heads, rows, { numeric: () => false });

    function byContext(answer, where) {
      return tableOf(
        `Concurrent requests by context on ${where}`,
        ["Context (tokens)", "Requests", "KV cache per request per GPU (GiB)", "Limited by"],
        answer.by_context.map((row) => [
          tokens(row.context_tokens),
          count(row.max_concurrent_requests),
          gib(row.kv_bytes_per_request_per_gpu, 3),
          row.max_concurrent_requests ? limit(row, answer) : reason(row),
        ]),
      );
    }

    const limit = (row, answer) =>
      row.limited_by === "max_num_seqs"
        // Of another context llama.cpp's flag has another value.
        ? make(
          "code",
          {},
          row === answer ? answer.most_requests_flag : answer.most_requests_flag.split(" ")[0],
        )
        : LIMITS[row.limited_by] || row.limited_by;

    const reason = (row) =>
      row.shortfall_bytes
        ? `short by ${gib(row.shortfall_bytes)} GiB`
        : kvKernel.words.no_request[row.verdict]?.[1] || row.verdict.replaceAll("_", " ");

    function everyGpu(rows, own) {
      const serving = rows.filter((row) => row.requests).sort((a, b) =>
        a.gpus - b.gpus || a.usable_bytes - b.usable_bytes
      );
      const others = rows.filter((row) => !row.requests);
      // What is said of many GPUs alike is said once.
      const alike = new Map();
      for (const row of others) {
        const why = row.reason || reason(row);
        alike.set(why, [...(alike.get(why) || []), row.name]);
      }
      return [
        make("h3", {}, "Every GPU"),
        serving.length && tableOf(
          `Fewest GPUs that serve one request of ${tokens(Number(own.context))} tokens, and what they serve`,
          ["GPU", "GPUs", "Requests", "Stored weights per GPU (GiB)", "Longest context (tokens)"],
          serving.map((
            row,
          ) => [
            row.name,
            String(row.gpus),
            count(row.requests),
            gib(row.weights),
            count(row.max_context_tokens),
          ]),
        ),
        others.length
          ? make(
            "details",
            { class: "kv-data" },
            make(
              "summary",
              {},
              `${plural(others.length, "GPU|GPUs")} on which up to 8 do not serve one request`,
            ),
            make(
              "ul",
              {},
              ...[...alike].map(([why, names]) => make("li", {}, `${names.join(", ")}: ${why}`)),
            ),
          )
          : null,
      ].filter(Boolean);
    }

    function details(model) {
      const components = Object.entries(model.by_component).sort((a, b) => b[1] - a[1]);
      const cache = (one) =>
        Object.entries(one).filter(([key]) => key !== "kind").map(([key, value]) =>
          `${key.replaceAll("_", " ")} ${JSON.stringify(value)}`
        ).join(", ");
      const record = new Blob([model.record], { type: "text/yaml" });
      return [
        make("h3", {}, "Parameters by component"),
        tableOf(
          "Parameters by component",
          ["Component", "Parameters", "Share"],
          components.map((
            [part, n],
          ) => [part.replaceAll("_", " "), count(n), `${(100 * n / model.parameters).toFixed(2)}%`]),
        ),
        make("h3", {}, "Caches by layer"),
        tableOf(
          "What layers keep per request",
          ["Layers", "Cache", "Sizes"],
          model.layers.flatMap((group) =>
            (group.caches.length ? group.caches : [{ kind: "none" }]).map((
              one,
            ) => [String(group.count), one.kind, cache(one)])
          ),
        ),
        make(
          "details",
          { class: "kv-data" },
          make("summary", {}, `${plural(model.tensors.length, "row|rows")} of weights`),
          tableOf(
            "Weights",
            ["Tensor", "Component", "Shape", "Count", "Format"],
            model.tensors.map((
              [name, part, shape, n, released],
            ) => [
              name,
              part.replaceAll("_", " "),
              shape.join(" × "),
              count(n),
              released || model.weight_format,
            ]),
          ),
        ),
        make(
          "p",
          {},
          make("a", {
            class: "kv-button",
            href: URL.createObjectURL(record),
            download: `${model.id.replace("/", "--")}.yaml`,
          }, "Download the model record (YAML)"),
        ),
      ];
    }

    /* --- Events ------------------------------------------------------------------------------------------------- */

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const hub = fields.hub.value.trim()
        .replace(/^(https:\/\/)?(huggingface\.co|hf\.co)\//, "").replace(/\/+$/, "");
      const paste = event.submitter?.name === "paste" || (!hub && fields.config.value);
      if (paste) calculate(fromFiles);
      else {
        // What the address says of the fields is of its own model.
        if (new URLSearchParams(location.search).get("hub") !== hub) kvreport.writeState({ hub }, true);
        calculate(() => fromHub(hub));
      }
    });
    fields.files.addEventListener("change", () => take(fields.files.files));
    // A config that is typed after a GGUF file was chosen is about another model.
    fields.config.addEventListener("input", () => {
      for (const name of dropped.keys()) if (/\.gguf$/i.test(name)) dropped.delete(name);
    });
    $("[data-kv-example]", form).addEventListener("click", () => {
      dropped = new Map();
      fields.config.value = $("template.kv-example", form).content.textContent.trim();
      calculate(fromFiles);
    });
    const drop = $("[data-kv-drop]", form);
    for (const kind of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.toggle("kv-over", kind === "dragover");
        if (kind === "drop" && event.dataTransfer.files.length) take(event.dataTransfer.files);
      });
    }
    const hub = new URLSearchParams(location.search).get("hub");
    if (hub) kvreport.put(fields.hub, hub);
    return { release };
  }

  kvreport.yours = yours;
})();
