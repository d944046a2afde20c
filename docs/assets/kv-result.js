/* What a state answers: the conclusion, its words and cells, the commands. Everything is made from one deployment;
   sentences are those of kvreport.words; kv-show.js has the parts of a page of one answer.
   Needs kv-kernel.js, kv-capacity.js, kv-state.js, kv-chart.js. */
(function () {
  "use strict";

  const { $, make, count, gib, plural, tokens, usersCell } = kvreport;
  const words = kvKernel.words;

  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");

  /* Text with **emphasis** as nodes. */
  const pieces = (text) =>
    text.split("**").map((part, n) => (n % 2 ? make("strong", {}, part) : part)).filter((part) =>
      part !== ""
    );

  const requestsText = (
    n,
  ) => (n >= kvKernel.UNLIMITED_REQUESTS
    ? "unlimited requests"
    : plural(n, "concurrent request|concurrent requests"));

  /* "8 × H200", "one H100", "16 × H200 (DP 16 attention + expert parallel)", "RTX 5090 + RTX 3090 (TP 2)". */
  function devicesText(layout, gpu) {
    if (gpu.devices) return `${gpu.short} (${ways(layout)})`;
    const number = kvreport.onDevices(layout.devices, gpu.short);
    return layout.devices === layout.tp && layout.dcp === 1 && !layout.ep
      ? number
      : `${number} (${ways(layout)})`;
  }

  /* How a layout divides a model: "PP 2 + TP 8". */
  function ways(layout) {
    const parts = Object.entries(words.ways).filter(([name]) => name === "ep" ? layout.ep : layout[name] > 1);
    const said = parts.map(([name, text]) => fill(text, { number: layout[name] }));
    return said.join(" + ") || fill(words.ways.tp, { number: 1 });
  }

  /* What makes the activations of experts over data ranks many times those of other layouts, and what reduces them. */
  function gathered({ site, deployment }, rank = deployment) {
    const layout = deployment?.layout;
    if (!layout?.ep || layout.dp < 2 || site.engine.family !== "vllm" || rank.ceiling) return "";
    const parts = kvCapacity.reserveParts(rank);
    const values = parts && { activations: gib(parts.activations), ranks: layout.dp };
    return values ? fill(words.sentences.experts_of_ranks, values) : "";
  }

  /* Everything that sentences need to know of a case. */
  function facts(site, model, gpu, state, found) {
    const asked = kvState.contextOf(state, model);
    const deployment = found && kvCapacity.told(found, asked);
    const answer = deployment && kvCapacity.serve(deployment, asked);
    return {
      site,
      model,
      gpu,
      state,
      deployment,
      context: asked,
      answer,
      names: {
        model: model.name,
        engine: site.engine.label,
        device: gpu.name,
        devices: deployment ? devicesText(deployment.layout, gpu) : gpu.short,
        layout: layoutWords(state),
        context: tokens(asked),
        limit: tokens(model.limit),
        wanted: count(state.requests || 1),
        ...(deployment && {
          requests: requestsText(answer.users),
          error: gib(deployment.uncertainty),
          seqs: count(deployment.seqs),
          held: count(answer.held),
          longest: tokens(deployment.longest),
          short: kvreport.missing(answer.short),
          need: gib(deployment.resident, 1),
          usable: gib(gpu.usable, 1),
          slots: count(kvKernel.wholeBlocks(deployment.pool, deployment.block)),
        }),
      },
    };
  }

  const layoutWords = (state) => ways({ ...state, tp: state.tp === "fewest" ? 1 : state.tp });

  /* What an engine does with a longest request beyond the model's limit. */
  const BEYOND = { vllm: "beyond_limit_vllm", sglang: "beyond_limit_sglang" };

  /* The conclusion, as text with **emphasis**. */
  function conclusion(one) {
    const { model, gpu, deployment, answer, context, names, state, site } = one;
    const say = (name, more = {}) => fill(words.sentences[name], { ...names, ...more });
    if (!deployment) {
      if (model.refused) {
        const { label } = site.engine, own = model.refused.startsWith(`${label} `);
        return say("refused", { reason: own ? `it${model.refused.slice(label.length)}` : model.refused });
      }
      if (!kvCapacity.isPublished(model, gpu)) return say("not_published");
      if (state.batched < model.least_step) {
        return say("step_too_short", { batched: count(state.batched), least: count(model.least_step) });
      }
      const layout = kvState.hasLayout(state) &&
        Number(state.tp || 1) * (state.dp || 1) * (state.pp || 1) > 1;
      if (gpu.local && !layout) return say("no_platform", { local: gpu.local.label });
      if (!divides(one)) return say("not_divided", { number: state.tp, sizes: model.splits.join(", ") });
      if (!layout || !anywhere(one)) return say("engine_does_not_run");
      const [found] = kvState.layouts(site, state);
      if (!site.layouts.includes(found)) return say("layout_not_published");
      const wider = state.weights &&
        kvState.deployments(site, model, gpu, { ...state, weights: undefined })[0];
      if (wider) return say("format_not_split", { weights: weightsText(site, state.weights) });
      // Files leave out other layouts that a model has no need of, too.
      if (found.devices !== found.tp || found.dcp > 1) return say("layout_of_model");
      return say(split(one, found) ? "engine_does_not_run" : "not_split");
    }
    const verdict = answer.verdict;
    if (verdict === "context_exceeds_model") {
      const inside = kvCapacity.serve(deployment, model.limit);
      const told = [say("context_exceeds_model")];
      if (inside.users) told.push(say("at_limit_instead", { requests: requestsText(inside.users) }));
      const refused = BEYOND[site.engine.family];
      if (refused) {
        told.push(say(refused, { tokens: String(context), held: requestsText(answer.held) }));
      }
      return told.join(" ");
    }
    if (!words.serving_verdicts.includes(verdict) || !answer.users) {
      const told = [say(verdict in words.sentences ? verdict : "cache_exceeds_pool")];
      if (deployment.longest > 0 && verdict === "cache_exceeds_pool") told.push(say("longest_that_fits"));
      return told.join(" ");
    }
    if (answer.held >= kvKernel.UNLIMITED_REQUESTS) {
      return [say("no_cache"), ...(verdict === "tight" ? [say("tight")] : [])].join(" ");
    }
    const told = [say(answer.users === 1 ? "serves_one" : "serves")];
    if (verdict === "tight") told.push(say("tight"));
    if (answer.limitedBy === "max_num_seqs") told.push(say("limited_max_num_seqs"));
    else if (answer.limitedBy === "state_slots") told.push(say("limited_state_slots"));
    if (state.requests && answer.users < state.requests) told.push(say("wanted"));
    if (site.engine.family !== "ceiling" && !deployment.ceiling && deployment.longest < model.limit) {
      told.push(say("longest"));
    } else if (context < model.limit) {
      told.push(say("at_limit", { requests: requestsText(kvCapacity.serve(deployment, model.limit).users) }));
    }
    return told.join(" ");
  }

  const label = (list, name) => (list.find((one) => one.name === name) || {}).label || name;
  const weightsText = (site, name) => label(site.weight_formats, name);

  /* Whether the model's shapes allow the tensor-parallel size of a state; the file says it of sizes up to 16. */
  const divides = ({ model, state }) =>
    !(state.tp > 1 && state.tp <= 16 && model.splits) || model.splits.includes(state.tp);

  /* Whether weights and heads divide in a layout. */
  const split = ({ model, gpu, state }, { places }) =>
    places.every((place) =>
      model.weights[model.form][place] !== null &&
      model.plan[state.kv || model.kv]?.[place]?.[gpu.kind] >= 0
    );

  /* Whether the formats that were chosen run on the accelerator in some layout. */
  const anywhere = ({ site, model, gpu, state }) =>
    kvState.deployments(site, model, gpu, { weights: state.weights, kv: state.kv }).length > 0;

  /* The settings of the engine that a state names. */
  const chosen = (state) =>
    [
      state.share !== undefined && `memory share ${state.share}`,
      state.batched && `${count(state.batched)} batched tokens`,
      state.seqs && `max_num_seqs ${count(state.seqs)}`,
      state.eager && "no CUDA graphs",
    ].filter(Boolean);

  const LISTED = 8; /* rules that a sentence names */

  /* Which rules differ between two releases of one engine, as nodes of a sentence: both have the same numbers where none does. */
  async function rulesBetween(base, site, releases) {
    const rules = await kvreport.load(new URL("engine-rules.json", base));
    const of = (name) => site.engines.find((one) => one.name === kvState.engineOf(site, name));
    const release = (name) => name.split("@")[1] || of(name)?.version;
    const ends = [...releases].sort((a, b) => (kvState.isBefore(release(a), release(b)) ? -1 : 1));
    const [first, last = first] = ends.map(release), family = releases[0].split(/[@-]/)[0];
    if (!first || !last || !rules[family]) return [];
    const maker = site.engines.find((one) => one.family === family).label.split(" ")[0];
    const alone = ends.length < 2, pair = `${maker} ${first} and ${last}`;
    const between = rules[family].filter(([since]) =>
      alone
        ? `${since}.`.startsWith(`${first}.`)
        : kvState.isBefore(first, since) && !kvState.isBefore(last, since)
    );
    const computed = [...new Set(ends.map(of))].filter((one, _, all) =>
      one && !one.label.endsWith(` ${one.version}`) &&
      (all.length === 1 ||
        ends.some((name) => of(name) === one && !`${one.version}.`.startsWith(`${release(name)}.`)))
    ).map((one) => `The numbers of this site for ${one.label} are those of ${one.version}.`);
    const some = between.filter(([, , , , list]) => !list), lists = between.length - some.length;
    const counted = [
      some.length && plural(some.length, "rule|rules"),
      lists && plural(lists, "list of model classes|lists of model classes"),
    ].filter(Boolean).join(" and ");
    const named = some.length <= LISTED
      ? some.map(([since, what, value]) =>
        ` Since ${since}: ${what.replace(/[.]$/, "")}${value && ` (now: ${value})`}.`
      ).join("")
      : "";
    const words = between.length
      ? `${counted} changed ${alone ? `in ${maker} ${first}` : `between ${pair}`}.${named}${
        named && !alone ? " Models and GPUs that none of them is about have the same numbers in both." : ""
      }`
      : alone
      ? `No rule changed in ${maker} ${first}.`
      : `No rule differs between ${pair}: both give the same numbers.`;
    const section = (of(ends.at(-1)) || of(ends[0]))?.name || "";
    const page = new URL(`data/engine-releases/#${section}`, kvreport.root).href;
    return [
      ` ${[...computed, words].join(" ")} `,
      ...between.length ? [make("a", { href: page }, "All of them, by release"), "."] : [],
    ];
  }

  /* --- parts -------------------------------------------------------------------------------------------- */

  /* [context, requests] wherever a request fits, to the longest that does. */
  function line(deployment, contexts, key = "users") {
    const { model } = deployment, points = [];
    for (const context of contexts) {
      const answer = kvCapacity.serve(deployment, context);
      const requests = answer[key];
      if (context <= model.limit && requests > 0 && requests < kvKernel.UNLIMITED_REQUESTS) {
        points.push([context, requests]);
      }
    }
    const last = deployment.ceiling ? 0 : Math.min(deployment.longest, model.limit);
    if (key === "users" && last > 0 && (!points.length || points[points.length - 1][0] < last)) {
      const { users } = kvCapacity.serve(deployment, last);
      if (users > 0 && users < kvKernel.UNLIMITED_REQUESTS) points.push([last, users]);
    }
    return points;
  }

  /* A reason that opens its explanation. */
  const whyButton = (text, act) =>
    make("button", { type: "button", class: "kv-whybutton", onclick: act }, text);

  /* The cell of an answer; one that does not fit opens its explanation. */
  function whyCell(answer, one, context) {
    if (answer.users > 0 && answer.verdict !== "context_exceeds_model") {
      return usersCell(answer.users, answer.verdict);
    }
    const cell = usersCell(0, answer.verdict);
    if (answer.verdict === "context_exceeds_model") return cell;
    cell.replaceChildren(whyButton(cellWords(answer), () => why(one, context)));
    return cell;
  }

  /* The explanation comes with its first opening. */
  const why = (one, context) =>
    Promise.all(["core-lists", "parts", "why"].map((name) => kvreport.script(`kv-${name}.js`))).then(() =>
      kvreport.explain(one, context)
    );

  function cellWords(answer) {
    const short = ["cache_exceeds_pool", "weights_exceed_memory", "may_fit"];
    if (short.includes(answer.verdict)) {
      return fill(words.cells.short, { short: kvreport.missing(answer.short) });
    }
    return (words.no_request[answer.verdict] || ["0"])[0];
  }

  /* Commands of a case: the one that computes it again, and the one that serves it, where it runs. */
  function commands(one) {
    const { site, model, gpu, state, deployment, answer, context } = one;
    const made = [];
    if (
      state.engine !== "ceiling" && deployment && answer.users &&
      words.serving_verdicts.includes(answer.verdict)
    ) {
      const longest = Math.max(Math.min(context, model.limit), 1);
      const serve = kvState.serveCommand(site, state, deployment, longest);
      if (serve) {
        made.push(
          make("p", { class: "kv-note" }, "This command starts the server:"),
          kvreport.command(serve, "start command"),
        );
        for (const note of kvCapacity.commandNotes(site, deployment)) {
          made.push(make("p", { class: "kv-note" }, note));
        }
      }
    }
    if (!divides(one)) return made;
    made.push(
      make(
        "p",
        { class: "kv-note" },
        "This command computes the same estimate on your machine. Add --format json for JSON output. With --require N, the command fails (in CI, for example) if fewer than N requests fit.",
      ),
      kvreport.command(kvState.answerCommand(site, model, gpu, state, deployment), "estimate command"),
    );
    return made;
  }

  /* How far the rules of the engine that a state names were off at first sight, or that no log is of its accelerator; null
     where nothing is known. */
  function confirmed({ site, state }) {
    const engine = site.engines.find((one) => one.name === (state.engine || site.engine.default));
    const gpu = site.gpus.find((one) => one.id === state.gpu);
    const evidence = new URL("evidence/", kvreport.root).href;
    const none = gpu && !gpu.logged && !gpu.local;
    const said = engine?.confirmed && (none ? words.sentences.no_log : engine.confirmed);
    if (!said) return null;
    const whole = make("p", { class: "kv-note" }, `${said} `, make("a", { href: evidence }, "Evidence"));
    if (none || !engine.expected) return whole;
    return make("details", { class: "kv-data" }, make("summary", {}, engine.expected), whole);
  }

  const printedTitles = new WeakMap();

  /* The title of a page whose title is its conclusion, in the tab and in the page's head: that of the headline that
     is shown, after a name where one is given, or what was printed. Pages with a title of their own keep it. */
  function titled(root, restored, name) {
    if (!printedTitles.has(root)) printedTitles.set(root, document.title);
    const printed = printedTitles.get(root);
    const [own, site] = printed.split(/ - (?=[^-]*$)/);
    if ($("h1", root)?.textContent.trim() === own) return;
    const said = $("[data-kv-slot=headline]", root)?.textContent.trim() || "";
    const short = name ? `${name}: ${said}` : said.split(/\.(?:\s|$)/)[0];
    const text = restored || !said ? own : short;
    document.title = site ? `${text} - ${site}` : text;
    const place = $('[data-md-component="header-topic"] .md-ellipsis');
    if (place) place.textContent = text;
  }

  function figure({ model, deployment }, data, each = "accelerator") {
    return make(
      "figure",
      { class: "kv-figure kv-boundary", id: "boundary-chart" },
      make("p", { class: "kv-finding" }),
      make("div", {
        class: "kv-plot",
        role: "img",
        tabindex: "0",
        "aria-label": `${model.name}: concurrent requests by context, one line per ${each}`,
      }),
      make(
        "figcaption",
        {},
        "Any combination on or below a line fits in memory. Where a line is flat, the engine's limit on concurrent sequences applies. Both axes are logarithmic (base 2).",
        deployment
          ? ` The dotted line is the upper bound for ${
            data.lines[0].name
          }: the capacity without engine overhead. The shaded area is the 80% error band of the estimate.`
          : "",
      ),
    );
  }

  Object.assign(kvreport, {
    result: {
      facts,
      conclusion,
      line,
      figure,
      whyButton,
      whyCell,
      why,
      ways,
      cellWords,
      commands,
      confirmed,
      titled,
      pieces,
      fill,
      gathered,
      devicesText,
      requestsText,
      settings: chosen,
      rulesBetween,
      label,
      layoutWords,
    },
  });
})();
