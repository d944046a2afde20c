/* What the model pages have beside the parts that every state fills: the figures at their head and the table of all
   accelerators. Needs kv-rows.js, kv-answers.js. */
(function () {
  "use strict";

  const { $, $$, make, count, fixed, gib, tokens, result } = kvreport;
  const { restoreTable, keepTable, putGroups, captioned, whyNot } = kvreport;
  const words = kvKernel.words;

  /* --- the figures at a model's head -------------------------------------------------------------------------- */

  /* Bytes in the binary unit that keeps three or four digits, as kvreport.units.human_bytes prints them. */
  function sized(bytes) {
    for (const [unit, size] of Object.entries({ TiB: 2 ** 40, GiB: 2 ** 30, MiB: 2 ** 20, KiB: 2 ** 10 })) {
      const value = bytes / size;
      if (!(value >= 1)) continue;
      return `${fixed(value, value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
    }
    return `${count(bytes)} B`;
  }

  /* How the cache of a token lies on the GPUs of a layout. */
  const divided = ({ tp, dp }, copied, each) =>
    !copied ? each : tp > 1 ? `a copy on each of ${tp} GPUs` : dp > 1 ? "each request on one GPU" : each;

  /* The figures of the deployment that a state names; without one they say nothing. */
  function figures(root, { deployment, answer, context }) {
    const number = deployment?.devices || 1;
    const split = number > 1 ? `per GPU, on ${number} GPUs` : "";
    const put = (name, label, value, note) => {
      for (const place of $$(`.kv-facts [data-kv-slot=${name}]`, root)) {
        place.toggleAttribute("hidden", !deployment);
        const remark = note ? [" ", make("small", {}, note)] : [];
        if (deployment) {
          place.replaceChildren(make("dt", {}, label), make("dd", {}, value, ...remark));
        }
      }
    };
    const released = deployment?.weightFormat === "released";
    put("weights", released ? "Weights as released" : "Weights", `${gib(deployment?.weights)} GiB`, split);
    const whole = deployment && (kvCapacity.wholeToken(deployment, context) || answer.token);
    const window = deployment && Math.max(...deployment.heldTerms.map(([, , cap]) => cap));
    const at = [
      !whole && window > 0 ? `beyond the window of ${tokens(window)} tokens` : `at ${tokens(context)} tokens`,
    ];
    if (split) at.push(divided(deployment.layout, answer.token === whole, `${sized(answer.token)} ${split}`));
    put("token", "KV cache per token", sized(whole), at.join("; "));
    put("state", "Recurrent state per request", sized(deployment?.state), split);
  }

  /* --- the best-case speed of a case ---------------------------------------------------------------------------- */

  const SPEED_AT = [2048, 8192, 32768, 131072]; // as the printed table

  /* The section on speed for the case that a state names. The printed one, with its note, stays where a layout divides more
     than tensors, or where no rates are published. */
  async function speeds(root, one, wanted) {
    const printed = $(".kv-best", root);
    const { deployment, gpu, model } = one, layout = deployment?.layout;
    const plain = layout?.devices === layout?.tp && !layout?.ep && !gpu.devices;
    const base = new URL("downloads/v1/", kvreport.root);
    const read = (name) => kvreport.load(new URL(name, base)).catch(() => null);
    const [peaks, times] = printed && deployment && plain
      ? await Promise.all([read("peaks.json"), read(`times/${model.slug}.json`)])
      : [];
    if (!wanted()) return;
    const rates = peaks?.gpus[gpu.id];
    const step = rates && times?.weights[deployment.weightFormat] && times.reach[deployment.kvFormat] &&
      kvCapacity.demandOf(
        times,
        rates,
        deployment.weightFormat,
        deployment.kvFormat,
        layout.places[0],
        layout.tp,
      );
    const shown = step && Number.isFinite(kvKernel.decodeSeconds(step, 1, 0)) ? best(one, step) : [];
    printedSpeed(root);
    if (!shown.length) return;
    printed.setAttribute("hidden", "");
    printed.after(make("div", { class: "kv-best-here" }, ...shown));
  }

  function printedSpeed(root) {
    $(".kv-best", root)?.removeAttribute("hidden");
    $(".kv-best-here", root)?.remove();
  }

  /* The sentence and the table; empty where no request fits. */
  function best({ deployment, model, names }, step) {
    const lines = SPEED_AT.filter((context) => context <= model.limit).map((context) => {
      const users = Math.min(kvCapacity.serve(deployment, context).users, MOST_BATCH);
      return { context, users, seconds: kvKernel.decodeSeconds(step, users, context) };
    }).filter(({ users }) => users > 0);
    if (!lines.length) return [];
    const told = lines.find(({ context }) => context === kvKernel.USEFUL_TOKENS) || lines[0];
    const total = ({ users, seconds }) => count(Math.round(users / seconds));
    const ms = (seconds, digits) => fixed(roundedDown(1000 * seconds), digits);
    const each = ({ seconds }) => fixed(1 / seconds, 1);
    const sentence = result.fill(words.sentences.best_speed, {
      on: names.devices,
      alone: ms(kvKernel.decodeSeconds(step, 1, 0), 1),
      requests: kvreport.plural(told.users, "request|requests"),
      context: tokens(told.context),
      get: told.users === 1 ? "gets" : "get",
      each: each(told),
      total: total(told),
    });
    return [
      make("p", { class: "kv-lead" }, ...result.pieces(sentence)),
      kvreport.grid(
        `${model.name} on ${names.devices}, with as many requests as fit. Times are best-case bounds at peak rates.`,
        [
          "Context per request (tokens)",
          "Requests that fit",
          "Minimum decode step (ms)",
          "Maximum per request (tokens/s)",
          "Maximum in total (tokens/s)",
          "Minimum time to first token (ms)",
        ],
        lines.map((line) => [
          tokens(line.context),
          count(line.users),
          ms(line.seconds, 1),
          each(line),
          total(line),
          ms(kvKernel.prefillSeconds(step, line.context, 0), 0),
        ]),
      ),
    ];
  }

  const MOST_BATCH = 2 ** 20;

  /* A bound in three digits, never above itself. */
  function roundedDown(value) {
    const power = 10 ** (2 - Math.floor(Math.log10(value)));
    return Math.floor(value * power) / power;
  }

  const badges = new WeakMap();

  /* The badge as printed, or of the GPU that a state names; the requests that it shows are those of the site's file. */
  async function badge(root, gpu) {
    const code = $("#__kv_badge code", root);
    if (!code) return;
    if (!badges.has(code)) badges.set(code, code.textContent);
    const printed = badges.get(code), slug = location.pathname.split("/").filter(Boolean).pop();
    const [, label] = /^\[!\[(.*?)\]/.exec(printed);
    const all = gpu && await kvreport.load(new URL(`badge/${slug}.json`, kvreport.root)).catch(() => null);
    const other = all?.gpus[gpu.id]?.label;
    const asked = (text) => new URLSearchParams({ label: text }).toString();
    code.textContent = !other ? printed : printed.replace(`[${label}]`, `[${other}]`)
      .replace(asked(label), asked(other)).replace(/(gpus%5B%27).*?(%27)/, `$1${gpu.id}$2`);
  }

  /* --- a model's table of accelerators ------------------------------------------------------------------------ */

  /* Every accelerator under the formats and settings of a state, on the fewest GPUs that serve or in the layout that
     was chosen. */
  async function rewrite(root, one, chosen, wanted) {
    figures(root, one);
    badge(root, one.gpu);
    speeds(root, one, wanted);
    const table = /** @type {HTMLTableElement} */ ($("#users-table", root));
    const list = $(".kv-groups", root);
    if (!table) return;
    const contexts = one.site.contexts.slice(0, $$("thead th", table).length - 3);
    await kvreport.pause(); // the answer is drawn first
    const made = await kvreport.inSlices(served(one, chosen, contexts), wanted);
    if (!made || !wanted()) return;
    keepTable(table, list);
    captioned(table, result.fill(words.captions.devices, { devices: made.caption }));
    kvreport.putRows(table, made.rows);
    putGroups(
      list,
      kvreport.groupNodes([...made.groups].sort(([, a], [, b]) => a.length - b.length)),
    );
    kvreport.units?.(table);
  }

  /* The rows of accelerators that serve, the reasons of the others, and what the table says of their number of GPUs; one
     accelerator at a time. */
  function* served(one, chosen, contexts) {
    const { site, model, state } = one;
    const rows = [], groups = new Map();
    let caption = chosen ? gpusOf(one) : words.captions.fewest;
    for (const gpu of site.gpus) {
      yield;
      const cellsFor = (deployment) => result.facts(site, model, gpu, state, deployment);
      const possible = kvState.deployments(site, model, gpu, chosen ? state : { ...state, ...FEWEST });
      const asked = Math.min(kvKernel.USEFUL_TOKENS, model.limit);
      const serving = possible.find((each) => kvCapacity.serves(each, asked));
      if (serving) {
        rows.push(row(cellsFor(serving), contexts));
        // The case that the first line speaks of has a row of its own where it takes more GPUs.
        const devices = one.gpu.id === gpu.id && one.deployment?.devices;
        if (devices && devices !== serving.devices) {
          rows.push(row(one, contexts, `_${devices}`));
          caption = words.captions.fewest_and_case;
        }
      } else {
        const [reason, note] = whyNot(gpu, possible, asked, kvCapacity.isPublished(model, gpu));
        const most = cellsFor(possible.pop() || null), told = most.deployment && note;
        const why = () => result.why(most, most.context);
        groups.set(reason, [...(groups.get(reason) || []), [`on-${gpu.id}`, gpuLink(gpu), told, why]]);
      }
    }
    return { rows, groups, caption };
  }

  const FEWEST = { tp: "fewest", pp: undefined, dp: undefined, ep: undefined, dcp: undefined };

  /* The number of GPUs of a chosen layout, and the layout where it is more than tensors. */
  function gpusOf({ site, state }) {
    const [layout] = kvState.layouts(site, state);
    if (!layout) return words.captions.fewest;
    const number = kvreport.plural(layout.devices, "GPU|GPUs");
    return layout.label === `tp${layout.devices}` ? number : `${number} (${result.ways(layout)})`;
  }

  function row(one, contexts, which = "") {
    const { gpu, deployment } = one;
    const answers = contexts.map((context) => [context, kvCapacity.serve(deployment, context)]);
    return make(
      "tr",
      { id: `on-${gpu.id}${which}` },
      make("th", { scope: "row" }, gpuLink(gpu), " ", make("small", {}, gpu.vendor)),
      make("td", { class: "kv-num", "data-value": deployment.devices }, String(deployment.devices)),
      ...answers.map(([context, answer]) => result.whyCell(answer, one, context)),
      make(
        "td",
        { class: "kv-num", "data-value": deployment.longest },
        tokens(deployment.longest),
      ),
    );
  }

  const gpuLink = (gpu) =>
    make("a", { href: new URL(`../../gpus/${gpu.id}/`, location.href).pathname }, gpu.short);

  /* The printed cells that say what is short open their explanation, once the numbers are there. */
  function openers(root, base, site) {
    const none = { pp: undefined, dp: undefined, ep: undefined, dcp: undefined };
    const least = Math.min(kvKernel.USEFUL_TOKENS, ...site.contexts.slice(-1));
    kvreport.openers(root, site.contexts, (place, context) =>
      kvreport.whyOf(base, {
        ...kvreport.now(),
        gpu: place.id.replace(/^on-|_\d+$/g, ""),
        tp: (context && Number($("td", place).textContent)) || "fewest",
        ...none,
        context: context || least,
      }));
  }

  kvreport.pages = {
    home: {},
    model: {
      keys: ["name"],
      start: (root) => {
        const formats = ({ weights, kv, engine }) => ({ weights, kv, engine });
        for (const place of $$("#users-table, .kv-groups", root)) {
          kvreport.carry(place, () => {
            const now = kvreport.now?.();
            return now &&
              { ...formats(now), context: now.context === kvKernel.USEFUL_TOKENS ? undefined : now.context };
          });
        }
        kvreport.carry($(".kv-compare-this", root), () => {
          const now = kvreport.now?.();
          return now && { models: [now.model], gpu: now.gpu, context: now.context, ...formats(now) };
        });
      },
      render: rewrite,
      restore: (root, base, site) => {
        restoreTable(root);
        printedSpeed(root);
        badge(root);
        openers(root, base, site);
      },
    },
  };
})();
