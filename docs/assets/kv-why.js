/* Why a case does not fit, and what would change it: where one GPU's memory goes, down to what is missing, and the
   levers of kvreport.estimation.remedies tried one by one, with what each gives. Needs kv-result.js. */
(function () {
  "use strict";

  const { make, draw, grid, count, gib, tokens } = kvreport;
  const words = kvKernel.words;
  const LEVERS = words.levers;
  const MOST_PAIRS = 4; // as kvreport.estimation.remedies

  const signed = (bytes) => `${bytes < 0 ? "−" : ""}${gib(Math.abs(bytes))}`;

  /* [words, bytes, role] of each step from the usable memory to what is missing. */
  function steps(one, context) {
    const { state } = one;
    const deployment = kvCapacity.told(one.deployment, context);
    const { gpu } = deployment; // the fullest
    const label = (name, values = {}) => kvreport.result.fill(words.waterfall[name], values);
    const parts = kvCapacity.reserveParts(deployment);
    const share = state.share ?? gpu.share;
    const { request } = kvCapacity.serve(deployment, Math.min(context, deployment.model.limit));
    const states = deployment.wanted * deployment.block;
    const need = states > request ? ["states", states] : ["request", request];
    // No pool is made where requests hold nothing, so no share of the memory is held back.
    const kept = request ? deployment.memory - gpu.usable : 0;
    return [
      [label("usable"), gpu.usable, "total"],
      ...(kept ? [[label("share", { share }), kept, "taken"]] : []),
      [label("weights"), -deployment.resident, "weights"],
      ...(parts
        ? [
          [label("activations"), -parts.activations, "reserve"],
          [label("outside"), -parts.outside, "reserve"],
          [label("graphs"), -parts.graphs, "reserve"],
        ]
        : [[label("reserve"), -deployment.reserve, "reserve"]]),
      [label("pool"), deployment.room, "total"],
      [label(need[0], { context: tokens(context) }), -need[1], "cache"],
    ].filter(([, bytes, role]) => bytes !== 0 || role === "total");
  }

  function waterfall(one, context) {
    const deployment = kvCapacity.told(one.deployment, context);
    const { gpu } = deployment;
    const rows = steps(one, context);
    const { short } = kvCapacity.serve(deployment, Math.min(context, deployment.model.limit));
    const most = Math.max(gpu.usable, ...rows.map(([, bytes]) => Math.abs(bytes)));
    const line = ([label, bytes, role]) =>
      make(
        "tr",
        { class: role === "total" ? "kv-total" : false },
        make("th", { scope: "row" }, label),
        make("td", { class: "kv-num" }, signed(bytes)),
        make("td", { class: "kv-barcell" }, barOf(bytes, role, most)),
      );
    const result = make(
      "tr",
      { class: "kv-total kv-short" },
      make("th", { scope: "row" }, words.waterfall.short),
      make("td", { class: "kv-num" }, `${gib(short)} ± ${gib(deployment.uncertainty)}`),
      make("td", { class: "kv-barcell" }, barOf(short, "cache", most)),
    );
    return make(
      "table",
      { class: "kv-table kv-waterfall" },
      make("caption", {}, "Memory of one GPU (GiB)"),
      make("tbody", {}, ...rows.map(line), result),
    );
  }

  function barOf(bytes, role, most) {
    const fill = role === "total" ? "use" : role === "taken" ? "driver" : role;
    const width = 100 * Math.min(Math.abs(bytes) / most, 1);
    return draw(
      "svg",
      { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      draw("rect", { class: `kv-fill-${fill}`, width, height: 10 }),
    );
  }

  /* --- levers ----------------------------------------------------------------------------------------------- */

  /* Changes worth a try, as kvreport.estimation.remedies lists them: [words, the change of the state]. */
  function levers(one, context) {
    const { site, model, gpu, state } = one;
    const deployment = kvCapacity.told(one.deployment, context);
    const found = [];
    /* The engine's own flag with its value, in parentheses. */
    const server = site.engine.family, flags = words.serve[server];
    const flagged = (name, value) =>
      flags?.[name]
        ? ` (${flags[name]} ${name === "kv" ? words.kv_names[server][value] || value : value})`
        : "";
    if (deployment.longest > 0 && deployment.longest < context) {
      found.push([`Context of ${tokens(deployment.longest)} tokens`, { context: deployment.longest }]);
    }
    for (const kv of LEVERS.kv) {
      if (kv !== deployment.kvFormat && kv in model.plan) {
        found.push([`KV cache in ${kv.toUpperCase()}${flagged("kv", kv)}`, { kv }]);
      }
    }
    for (const weights of LEVERS.weights) {
      const smaller = (model.weights[weights] || [])[deployment.place];
      if (smaller && kvKernel.savedShare(deployment.weights, smaller) >= LEVERS.saving) {
        const flag = words.online_weights.includes(weights)
          ? flagged("weights", weights)
          : " (a checkpoint in this format)";
        found.push([`Weights in ${weights.toUpperCase()}${flag}`, { weights }]);
      }
    }
    if ((state.share ?? gpu.share) < LEVERS.utilization) {
      found.push([`Memory share ${LEVERS.utilization}${flagged("utilization", LEVERS.utilization)}`, {
        share: LEVERS.utilization,
      }]);
    }
    const batched = Math.max(LEVERS.batched, model.least_step);
    if (deployment.tokens > batched) {
      found.push([`${count(batched)} batched tokens${flagged("max_batched_tokens", batched)}`, { batched }]);
    }
    const slots = kvKernel.wholeBlocks(deployment.pool, deployment.block);
    if (deployment.wanted > slots && slots > 0) found.push([`max_num_seqs ${count(slots)}`, { seqs: slots }]);
    if (!deployment.eager) found.push([`No CUDA graphs (${words.serve.vllm.eager})`, { eager: true }]);
    const wider = site.layouts.filter((layout) =>
      layout.devices === layout.tp && layout.dcp === 1 && !layout.ep && layout.tp > deployment.layout.tp &&
      layout.devices <= LEVERS.node
    );
    for (const layout of wider) {
      found.push([`${layout.devices} × ${gpu.short}`, { ...kvState.stateOf(layout) }]);
    }
    return found;
  }

  /* What a change gives: the case with it. */
  function tried(one, context, change) {
    const { site, model, gpu, state, deployment } = one;
    const layout = "tp" in change ? {} : kvState.stateOf(deployment.layout);
    const next = { ...state, ...layout, context, ...change };
    const [found] = kvState.deployments(site, model, gpu, next);
    const answer = found && kvCapacity.serve(found, Math.min(next.context, model.limit));
    return { next, found, answer };
  }

  function leverTable(one, context, close) {
    const helps = (row) => words.serving_verdicts.includes(row.answer.verdict) && row.answer.users > 0;
    const single = levers(one, context);
    const made = (changes) =>
      changes.map(([label, change]) => ({ label, ...tried(one, context, change) })).filter((row) =>
        row.found
      );
    const rows = made(single);
    // Where no change is enough alone, two may be.
    if (!rows.some(helps)) {
      const pairs = single.flatMap(([label, change], n) =>
        single.slice(n + 1).filter(([, other]) => !Object.keys(other).some((key) => key in change))
          .map(([and, other]) => [`${label} + ${and}`, { ...change, ...other }])
      );
      rows.push(...made(pairs).filter(helps).slice(0, MOST_PAIRS));
    }
    if (!rows.length) {
      return make(
        "p",
        {},
        "No single change of format, setting or number of GPUs is published for this case.",
      );
    }
    rows.sort((a, b) => Number(helps(b)) - Number(helps(a)));
    return grid(
      rows.length > single.length ? "What one change or two give" : "What one change gives",
      ["Change", "Concurrent requests", "Result"],
      rows.map((row) => [
        link(row, close),
        count(row.answer.users),
        helps(row) ? words.verdict_labels[row.answer.verdict] : kvreport.result.cellWords(row.answer),
      ]),
      { css: "kv-levers", numeric: (n) => n === 1 },
    );
  }

  function link(row, close) {
    if (!kvreport.go) return row.label;
    return make("button", {
      type: "button",
      class: "kv-link",
      onclick: () => {
        close();
        kvreport.go(row.next);
      },
    }, row.label);
  }

  /* Published start-up logs of the same model and accelerator, once they are read. */
  async function logs({ model, gpu }, dialog) {
    const names = ["state", "base", "compare", "explore"].map((name) => `data-kv-${name}`);
    const own = document.querySelector(names.map((name) => `[${name}]`).join());
    if (!own) return;
    const base = new URL(names.map((name) => own.getAttribute(name)).find(Boolean), location.href);
    const file = await kvreport.load(new URL("logs.json", base)).catch(() => ({}));
    const found = (file[model.slug] || {})[gpu.id] || [];
    if (!found.length || !dialog.isConnected) return;
    const line = (log) =>
      make(
        "li",
        {},
        make("a", { href: log.url, rel: "noopener nofollow" }, log.engine),
        `: ${log.model}, ${kvreport.plural(log.devices, "GPU|GPUs")}, ${
          log.starts ? "starts" : "does not start"
        }`,
        log.context_tokens ? ` at ${tokens(log.context_tokens)} tokens` : "",
        log.pool_gib === null || log.pool_gib === undefined
          ? ""
          : `, KV pool ${String(log.pool_gib).replace("-", "−")} GiB`,
        log.kv_tokens ? `, ${count(log.kv_tokens)} KV tokens` : "",
      );
    dialog.append(
      make("h3", {}, "Published start-up logs on this GPU: this model, or one with the same shapes"),
      make("ul", {}, ...found.map(line)),
    );
  }

  /* Open the explanation of a case at a context. */
  function explain(one, context) {
    const before = kvreport.focusIn(document.body);
    const dialog = make("dialog", { class: "kv-dialog md-typeset", "aria-labelledby": "kv-why-title" });
    const close = () => dialog.close();
    const at = { ...one.state, context };
    const about = kvreport.result.facts(one.site, one.model, one.gpu, at, one.deployment);
    dialog.append(
      make("button", { type: "button", class: "kv-close", "aria-label": "Close", onclick: close }, "×"),
      make(
        "h2",
        { id: "kv-why-title" },
        `${one.model.name} on ${about.names.devices}, ${tokens(context)} tokens`,
      ),
      make("p", {}, ...kvreport.result.pieces(kvreport.result.conclusion(about))),
      waterfall(about, context),
      leverTable(about, context, close),
      ...kvreport.result.gathered(about) ? [make("p", {}, kvreport.result.gathered(about))] : [],
      ...kvreport.result.commands(about).slice(-2),
    );
    logs(about, dialog);
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      before();
    });
    document.body.append(dialog);
    dialog.showModal();
  }

  Object.assign(kvreport, { explain, levers, tried });
})();
