/* The parts that a page of one answer has places for: the conclusion, a memory bar for each GPU, the boundary chart, a table
   by context, commands, a link and a citation. Needs kv-result.js, kv-chart.js. */
(function () {
  "use strict";

  const { $, $$, command, make, count, gib, grid, tokens, memoryBar, result } = kvreport;
  const {
    conclusion,
    requestsText,
    devicesText,
    line,
    whyCell,
    why,
    commands,
    confirmed,
    pieces,
  } = result;
  const { figure, label, layoutWords, settings } = result;
  const words = kvKernel.words;
  const WELL_KNOWN = 6;

  /* Bytes and tokens of the pool, where requests fit. */
  function poolOf({ deployment, answer, context, state }) {
    if (!answer.users || state.engine === "ceiling" || answer.held >= kvKernel.UNLIMITED_REQUESTS) return "";
    const number = kvCapacity.poolTokens(deployment, context);
    const values = { pool: gib(deployment.pool), number: count(number), context: tokens(context) };
    const told = `${result.fill(words.sentences.pool_tokens, values)} ${rangeOf(deployment, context)}`;
    return Number.isFinite(number) ? told : "";
  }

  /* The requests at both ends of the pool's error band; "" where they are as many. */
  function rangeOf(deployment, context) {
    const error = deployment.uncertainty;
    const [low, high] = [-error, error].map((more) =>
      count(kvCapacity.serve(shifted(deployment, more), context).users)
    );
    if (low === high) return "";
    return `${result.fill(words.sentences.requests_range, { error: gib(error), low, high })} `;
  }

  function conditions(one) {
    const { site, deployment, state } = one;
    if (!deployment) return "Computed from formulas, not measured.";
    const weights = label(site.weight_formats, deployment.weightFormat);
    const released = deployment.model.by_name ? words.sentences.weights_by_name : "weights as released";
    const cache = label(site.kv_formats, deployment.kvFormat);
    const named = [
      state.engine === "ceiling" ? "no engine overhead" : site.engine.label,
      deployment.weightFormat === "released" ? released : `weights: ${weights}`,
      `KV cache: ${cache}`,
      ...settings(state),
    ].filter(Boolean);
    return `${poolOf(one)}Computed, not measured, for ${named.join(", ")}.`;
  }

  /* A bar for one GPU, or one for each of unequal ones. */
  function bars(one) {
    const { deployment, context } = one;
    if (!deployment) return [];
    const at = Math.min(context, deployment.model.limit);
    const { users } = kvCapacity.serve(deployment, at);
    const here = kvKernel.perRank(Math.min(users, kvKernel.UNLIMITED_REQUESTS), deployment.layout.dp);
    if (!one.gpu.devices) return [bar(one, deployment, here, at, "Memory of one GPU")];
    return deployment.ranks.map((rank) => {
      const stage = deployment.layout.pp > 1
        ? `, stage ${deployment.layout.places.indexOf(rank.place) + 1}`
        : "";
      return bar(one, rank, here, at, `Memory of the ${rank.gpu.short}${stage}`);
    });
  }

  function bar(one, deployment, here, at, title) {
    const { state } = one;
    const { gpu } = deployment;
    const request = kvCapacity.reservedBytes(deployment, at);
    const states = Math.min(here * deployment.state, here * request);
    const reserve = deployment.ceiling ? 0 : deployment.reserve;
    const resident = deployment.ceiling ? deployment.weights : deployment.resident;
    const parts = [
      ["weights", "loaded weights", resident],
      ["cache", "KV cache", here * request - states],
      ["state", "recurrent states", states],
      ["reserve", "activations, libraries, graphs", reserve],
    ];
    const used = parts.reduce((sum, [, , bytes]) => sum + bytes, 0);
    const free = gpu.usable - used;
    const share = state.share ?? gpu.share;
    const total = Math.max(gpu.usable, used), gathered = result.gathered(one, deployment);
    return memoryBar(
      title,
      [...parts, ["free", "unused", free]],
      total,
      `${title} with ${requestsText(here)} of ${tokens(at)} tokens. ${
        result.fill(words.sentences.process_memory, {
          usable: gib(gpu.usable),
          share: share < 1 ? `${Number((100 * share).toPrecision(6))}%` : "all",
        })
      } The 80% error band of the KV pool is ±${
        gib(deployment.uncertainty)
      } GiB. ${words.sentences.band_of_kind}${gathered ? ` ${gathered}` : ""}`,
    );
  }

  /* The same deployment with a pool at one end of its error band. */
  function shifted(deployment, bytes) {
    const ranks = deployment.ranks.map((rank) => kvCapacity.shifted(rank, bytes));
    return { ...deployment, left: deployment.left + bytes, ranks };
  }

  /* What the chart draws: the case, and the other deployments that a page compares it with. */
  function chartData(one, others) {
    const { site, model, deployment, answer, context, gpu } = one;
    const lines = [];
    if (deployment) {
      lines.push({ name: devicesText(deployment.layout, gpu), points: line(deployment, site.contexts) });
    }
    for (const { name, deployment: other } of others) {
      if (lines.length >= WELL_KNOWN) break;
      const points = line(other, site.contexts);
      if (points.length) lines.push({ name, points });
    }
    const drawn = lines.filter((each) => each.points.length);
    if (!drawn.length) return null;
    const own = deployment && lines[0].points.length > 0;
    return {
      lines: drawn,
      limit: model.limit,
      equal: !own,
      ceiling: own ? line(deployment, site.contexts, "ceiling") : [],
      low: own ? line(shifted(deployment, -deployment.uncertainty), site.contexts) : [],
      high: own ? line(shifted(deployment, deployment.uncertainty), site.contexts) : [],
      chosen: own && answer.users > 0 ? [Math.min(context, model.limit), answer.users] : null,
    };
  }

  /* The same model on the accelerators that most readers know: in the layout that is asked for, else on the fewest devices
     that run the case, which their names say then. */
  function elsewhere({ site, model, gpu, state }) {
    const found = [], own = state.pp > 1 || state.dp > 1 || state.ep || state.dcp > 1;
    for (const id of site.known) {
      if (id === gpu.id) continue;
      const other = site.gpus.find((each) => each.id === id);
      const alike = own && other ? kvState.pick(site, model, other, state) : null;
      const deployment = alike || other &&
          kvState.pick(site, model, other, { ...state, tp: undefined, pp: 1, dp: 1, ep: undefined, dcp: 1 });
      if (!deployment || !kvCapacity.serve(deployment, Math.min(kvKernel.USEFUL_TOKENS, model.limit)).users) {
        continue;
      }
      const layout = own && !alike ? ` (TP ${deployment.layout.tp})` : "";
      found.push({ name: `${devicesText(deployment.layout, other)}${layout}`, deployment });
    }
    return found;
  }

  /* Requests by context of one deployment: a row for each context. */
  function table(one) {
    const { site, model, deployment, gpu } = one;
    if (!deployment) return null;
    const rows = site.contexts.filter((context) => context <= model.limit || context === site.contexts[0]);
    const heads = [
      "Context per request (tokens)",
      "Concurrent requests",
      "KV cache per request and GPU (GiB)",
      "Limited by",
    ];
    const body = rows.map((context) => {
      const answer = kvCapacity.serve(deployment, context);
      return make(
        "tr",
        context === one.context ? { "aria-current": "true" } : {},
        make("th", { scope: "row", class: "kv-num" }, tokens(context)),
        whyCell(answer, one, context),
        make("td", { class: "kv-num kv-size", "data-value": answer.request }, gib(answer.request)),
        make("td", {}, limitWords(answer)),
      );
    });
    const made = grid(
      `${model.name} on ${devicesText(deployment.layout, gpu)}, by context per request`,
      heads,
      body,
      { css: "kv-by-context", label: "Capacity by context length", numeric: (n) => n < 3 },
    );
    made.tabIndex = 0;
    return made;
  }

  const limitWords = (answer) =>
    answer.users ? words.limits_of_requests[answer.limitedBy] : words.verdict_labels[answer.verdict];

  /* A link to exactly this answer, and how to cite it. */
  function cite(one) {
    const { site, model, names } = one;
    const address = kvreport.address();
    const text = `kvreport, ${model.name} on ${names.devices}, data release ${site.release}. ${address}`;
    return [
      make("p", { class: "kv-note" }, "Link to this answer:"),
      command(address, "link"),
      make("p", { class: "kv-note" }, "Cite as:"),
      command(text, "citation"),
    ];
  }

  /* The ways to the layouts of as many GPUs that have numbers, where the one that a state names has none. */
  function published({ site, model, gpu, state, deployment }) {
    if (deployment || !kvState.hasLayout(state) || gpu.devices) return [];
    const { tp, pp, dp } = kvState.named(state);
    const links = site.layouts.filter((layout) => layout.devices === tp * pp * dp).map((layout) => ({
      ...state,
      ...kvState.stateOf(layout),
    })).filter((other) => kvState.deployments(site, model, gpu, other).length).map((other) =>
      make("a", { href: location.pathname + kvState.search(other) }, layoutWords(other))
    );
    const listed = links.flatMap((link, n) => (n ? [", ", link] : [link]));
    return links.length ? [` ${words.sentences.layouts_published} `, ...listed, "."] : [];
  }

  /* Fill the places that a page has. root: where to look; others: further lines of the chart. */
  function show(root, one, others) {
    const put = (name, ...children) => {
      for (const place of $$(`[data-kv-slot=${name}]`, root)) {
        place.replaceChildren(...children.filter(Boolean));
        place.toggleAttribute("hidden", !children.some(Boolean));
      }
    };
    const { local, id } = one.gpu;
    const page = !one.deployment && local
      ? make("a", { href: new URL(`gpus/${id}/`, kvreport.root).href }, words.sentences.its_page)
      : null;
    put("headline", ...pieces(conclusion(one)), page && " ", page, ...published(one));
    put("conditions", conditions(one), whyLink(one), ...sizerLink(one));
    put("confirmed", one.deployment && confirmed(one));
    put("bar", ...bars(one));
    put("table", table(one));
    put("commands", ...commands(one));
    put("cite", ...cite(one));
    const data = chartData(one, others);
    for (const place of $$("[data-kv-slot=chart]", root)) {
      place.replaceChildren(...(data ? [figure(one, data)] : []));
      if (data) kvreport.chart($(".kv-plot", place), data);
    }
  }

  /* Where fewer requests run than are wanted: what was tried, and the sizer with the same case, which has several copies. */
  function sizerLink({ site, model, gpu, state, deployment, answer }) {
    if (!deployment || !(state.requests > answer.users) || gpu.devices || model.refused) return [];
    const tried = kvState.hasLayout(state)
      ? layoutWords(state)
      : site.sizes.map((tp) => `TP ${tp}`).join(", ");
    const address = kvState.sizerAddress({ ...state, model: model.slug, gpu: gpu.id });
    return [
      ` Tried here: one copy with ${tried}. `,
      make(
        "a",
        { href: new URL(address, kvreport.root).href },
        "Size it with more layouts and several copies",
      ),
      ".",
    ];
  }

  function whyLink(one) {
    const { deployment, answer, context } = one;
    if (!deployment || (answer.users > 0 && answer.verdict !== "may_fit")) return null;
    if (answer.verdict === "context_exceeds_model") return null;
    return make(
      "button",
      { type: "button", class: "kv-chip", onclick: () => why(one, context) },
      "Why, and what would help",
    );
  }

  Object.assign(result, { show, elsewhere });
})();
