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
        badge(root);
        openers(root, base, site);
      },
    },
  };
})();
