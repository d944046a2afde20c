/* The explorer: the whole matrix, evaluated in the browser from the published profiles. Only what the
   filters leave is computed; a choice too wide to list says so. */
(function () {
  "use strict";

  const {
    $,
    make,
    count,
    plural,
    tokens,
    roughTokens,
    gib,
    load,
    usersCell,
    readState,
    writeState,
    ignoredNote,
    debounce,
    matches,
    units,
  } = kvreport;
  const MOST = 400000; /* rows that are evaluated at once */
  const PAGE = 50; /* rows shown at first */
  const FEW = 8; /* choices of a long list that are shown at first */
  const START = { gpu: ["h100-sxm-80gb"], context: ["8192"], tp: ["1"], weights: ["released"], kv: ["own"] };

  function explore(root) {
    let site,
      models = [],
      state = {},
      ignored = [],
      found = { rows: [], total: 0 },
      shown = PAGE,
      said,
      table,
      facets = [],
      inputs = { text: null, least: null },
      turn = 0;
    const bySize = new Map();

    load(root.dataset.kvExplore).then(async (data) => {
      site = data;
      models = await ofSize(site.sizes[0]);
      build();
      restore();
    }).catch((error) => {
      $(".kv-said", root).textContent =
        `The catalogue could not be read (${error.message}). The data page has every row.`;
    });

    /* The models with the numbers of one tensor-parallel size; each size is a file of its own. */
    async function ofSize(size) {
      if (!bySize.has(size)) {
        const packed = await load(
          new URL(`explore/${size}.json`, new URL(root.dataset.kvExplore, location.href)),
        );
        bySize.set(
          size,
          kvCapacity.unpack(site, size, packed).map((model) => ({
            ...model,
            text: [model.name, model.id, model.family, model.maker, model.kind, ...model.aliases].join(" ")
              .toLowerCase(),
          })),
        );
      }
      return bySize.get(size);
    }

    const wantedSizes = () => site.sizes.filter((n) => !state.tp || state.tp.includes(String(n)));

    function axes() {
      const frequent = (values) => {
        const counts = new Map();
        for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
        return [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
      };
      const distinct = (values) => [...new Set(values)].sort();
      const most = site.gpus.some((gpu) => gpu.id === START.gpu[0]) ? null : site.gpus[0].id;
      if (most) START.gpu = [most];
      const known = new Set(site.known);
      const gpus = [
        ...site.known.map((id) => site.gpus.find((gpu) => gpu.id === id)),
        ...site.gpus.filter((gpu) => !known.has(gpu.id)),
      ];
      return [
        { key: "gpu", label: "accelerator", many: true, values: gpus.map((gpu) => [gpu.id, gpu.short]) },
        { key: "context", label: "context", values: site.contexts.map((n) => [String(n), tokens(n)]) },
        { key: "tp", label: "devices", values: site.sizes.map((n) => [String(n), String(n)]) },
        { key: "weights", label: "weights", values: site.weight_formats.map((one) => [one.name, one.label]) },
        {
          key: "kv",
          label: "KV cache",
          values: [["own", "the model's own"], ...site.kv_formats.map((one) => [one.name, one.label])],
        },
        { key: "verdict", label: "verdict", values: Object.entries(kvKernel.words.verdict_labels) },
        {
          key: "kind",
          label: "remembers by",
          values: distinct(models.map((model) => model.kind)).map((kind) => [kind, kind]),
        },
        {
          key: "maker",
          label: "maker",
          many: true,
          values: frequent(models.map((model) => model.maker)).map((maker) => [maker, maker]),
        },
      ];
    }

    function build() {
      const text = make("input", {
        type: "search",
        name: "name",
        placeholder: "llama 70b, mla, qwen …",
        autocomplete: "off",
      });
      const least = make("input", { type: "number", name: "users", min: 0, step: 1, placeholder: "0" });
      text.addEventListener(
        "input",
        debounce(() => {
          set("name", text.value ? [text.value] : [], true);
        }, 90),
      );
      least.addEventListener(
        "input",
        debounce(() => {
          set("users", least.value ? [least.value] : [], true);
        }, 90),
      );
      facets = axes();
      const fields = facets.map((facet) => {
        const box = make("div", { class: "kv-chips" });
        facet.chips = new Map();
        facet.reveal = ([value, label]) => {
          if (facet.chips.has(value)) return;
          const chip = make("button", {
            type: "button",
            class: "kv-chip",
            "aria-pressed": "false",
            value,
            onclick: () => {
              const now = new Set(state[facet.key] || []);
              if (!now.delete(value)) now.add(value);
              set(facet.key, [...now]);
            },
          }, label);
          facet.chips.set(value, chip);
          box.insertBefore(chip, more);
        };
        const rest = facet.many ? facet.values.length - FEW : 0;
        const more = rest > 0
          ? make("button", {
            type: "button",
            class: "kv-chip kv-more",
            onclick: () => {
              facet.values.forEach(facet.reveal);
              more.remove();
            },
          }, `${rest} more`)
          : null;
        if (more) box.append(more);
        facet.values.slice(0, rest > 0 ? FEW : undefined).forEach(facet.reveal);
        return make("fieldset", {}, make("legend", {}, facet.label), box);
      });
      inputs = { text, least };
      said = make("p", { class: "kv-said", "aria-live": "polite" });
      table = make("table", { class: "kv-table kv-grid kv-explored", id: "explore-table" });
      root.replaceChildren(
        make(
          "div",
          { class: "kv-controls" },
          make("label", {}, "model ", text),
          make("label", {}, "at least, users ", least),
        ),
        make("div", { class: "kv-facets" }, ...fields),
        said,
        make("div", {
          class: "kv-scroll",
          role: "region",
          tabindex: "0",
          "aria-label": "The rows that the filters leave",
        }, table),
        make("p", { class: "kv-after" }),
      );
    }

    /** @type {[string, (row: any) => any, boolean?, string?][]} */
    const COLUMNS = [
      ["model", (row) => row.config.model.name, false],
      ["accelerator", (row) => row.config.gpu.short, false],
      ["devices", (row) => row.config.size, true],
      ["context", (row) => row.context, true],
      ["users", (row) => row.users, true],
      ["ceiling", (row) => row.ceiling, true],
      ["longest", longest, true],
      ["weights", (row) => row.config.weightFormat, false],
      ["KV cache", (row) => row.config.kvFormat, false],
      ["weights", (row) => row.config.weights, true, "each"],
      ["pool", (row) => row.config.pool, true, "each"],
      ["one request", (row) => row.request, true, "each"],
    ];

    function set(key, values, replace) {
      if (values.length) state[key] = values;
      else delete state[key];
      shown = PAGE;
      show();
      writeState(Object.keys(state).length ? state : { show: "all" }, replace);
    }

    function search() {
      const wanted = (model) =>
        (!state.name || matches(model.text, state.name[0])) &&
        (!state.kind || state.kind.includes(model.kind)) &&
        (!state.maker || state.maker.includes(model.maker));
      const gpus = site.gpus.filter((gpu) => !state.gpu || state.gpu.includes(gpu.id));
      const forms = site.weight_formats.map((one) => one.name).filter((name) =>
        !state.weights || state.weights.includes(name)
      );
      const contexts = site.contexts.filter((n) => !state.context || state.context.includes(String(n)));
      const least = Number(state.users?.[0] || 0);
      const caches = (model) =>
        Object.keys(model.plan).filter((name) =>
          !state.kv || state.kv.includes(name) || (state.kv.includes("own") && name === model.kv)
        );
      let total = 0;
      const possible = [];
      for (const tp of wantedSizes()) {
        const size = site.sizes.indexOf(tp);
        for (const model of bySize.get(tp).filter(wanted)) {
          for (const form of forms) {
            if (model.weights[form]?.[size] === null) continue;
            for (const cache of caches(model)) {
              for (const gpu of gpus) {
                if (model.plan[cache][size][gpu.kind] < 0) continue;
                total += contexts.length;
                if (total <= MOST) possible.push([model, gpu, size, form, cache]);
              }
            }
          }
        }
      }
      if (total > MOST) return { rows: [], total, wide: true };
      const rows = [];
      for (const [model, gpu, size, form, cache] of possible) {
        const config = kvCapacity.configure(site, model, gpu, size, form, cache, true);
        for (const context of contexts) {
          const answer = { ...kvCapacity.answer(config, context), config, context };
          if (state.verdict && !state.verdict.includes(answer.verdict)) continue;
          if (least && !(answer.users >= least && kvKernel.words.serving_verdicts.includes(answer.verdict))) {
            continue;
          }
          rows.push(answer);
        }
      }
      return { rows, total };
    }

    async function show() {
      const mine = (turn += 1);
      await Promise.all(site.sizes.filter((n) => wantedSizes().includes(n) || bySize.has(n)).map(ofSize));
      if (mine === turn) showNow();
    }

    function showNow() {
      for (const facet of facets) {
        for (const value of state[facet.key] || []) facet.reveal(facet.values.find(([one]) => one === value));
        for (const [value, chip] of facet.chips) {
          chip.setAttribute("aria-pressed", Boolean(state[facet.key]?.includes(value)));
        }
      }
      if (inputs.text.value !== (state.name?.[0] || "")) inputs.text.value = state.name?.[0] || "";
      if (inputs.least.value !== (state.users?.[0] || "")) inputs.least.value = state.users?.[0] || "";
      found = search();
      order();
      speak();
      draw();
    }

    function order() {
      const asked = state.sort?.[0];
      if (!asked) return;
      const [, key] = COLUMNS[Number(asked.replace(/^-/, "")) - 1];
      const sign = asked.startsWith("-") ? -1 : 1;
      found.rows.sort((a, b) => {
        const x = key(a), y = key(b);
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
      });
    }

    function words() {
      const parts = state.name ? [`model contains “${state.name[0]}”`] : [];
      for (const facet of facets) {
        if (state[facet.key]) {
          parts.push(
            `${facet.label} ${
              state[facet.key].map((value) => (facet.values.find(([one]) => one === value) || [0, value])[1])
                .join(" or ")
            }`,
          );
        }
      }
      if (state.users) parts.push(`at least ${state.users[0]} users`);
      return parts;
    }

    function speak() {
      const parts = words();
      const start = found.wide
        ? `${
          count(found.total)
        } rows are too many to list here: choose a model, an accelerator or a context, or take the Parquet from the data page.`
        : `${plural(found.rows.length, "rows")} of ${count(found.total)}`;
      said.replaceChildren(start, found.wide ? "" : parts.length ? `: ${parts.join("; ")}. ` : ". ");
      if (!found.wide && !found.rows.length) said.append(culprit(), " ");
      if (parts.length) {
        said.append(
          make("button", {
            type: "button",
            class: "kv-chip",
            onclick: () => {
              state = {};
              ignored = [];
              shown = PAGE;
              show();
              writeState({ show: "all" });
            },
          }, "clear"),
          " ",
        );
      }
      if (found.rows.length) {
        said.append(
          make("button", { type: "button", class: "kv-button", onclick: download }, "Download as CSV"),
        );
      }
      said.append(ignoredNote(ignored) || "");
    }

    function culprit() {
      const kept = state, would = [];
      for (const key of ["name", "users", ...facets.map((facet) => facet.key)]) {
        if (!kept[key]) continue;
        state = { ...kept };
        delete state[key];
        if (!wantedSizes().every((n) => bySize.has(n))) continue;
        const rest = search();
        if (rest.wide || rest.rows.length) {
          would.push(
            `Without ${
              key === "name"
                ? "the model's name"
                : key === "users"
                ? "the least number of users"
                : facets.find((facet) => facet.key === key).label
            } there would be ${rest.wide ? "many" : count(rest.rows.length)}.`,
          );
        }
      }
      state = kept;
      return would.length ? would.join(" ") : "No single filter empties it; clear them.";
    }

    function draw() {
      const heads = COLUMNS.map(([title, , numeric, unit], n) => {
        const sorted = state.sort?.[0]?.replace(/^-/, "") === String(n + 1) &&
          (state.sort[0].startsWith("-") ? "descending" : "ascending");
        const button = make(
          "button",
          {
            type: "button",
            class: "kv-sort",
            onclick: () => {
              const now = state.sort?.[0];
              const mine = String(n + 1);
              set("sort", [
                now === mine ? `-${mine}` : now === `-${mine}` ? mine : numeric ? `-${mine}` : mine,
              ], true);
            },
          },
          title,
          unit
            ? make("span", { class: "kv-unit" }, make("span", { class: "kv-gib" }, "GiB"), ` ${unit}`)
            : null,
        );
        return make("th", { scope: "col", class: numeric && "kv-num", "aria-sort": sorted }, button);
      });
      const body = make("tbody", {}, ...found.rows.slice(0, shown).map(line));
      table.replaceChildren(
        make("caption", {}, "Users of the whole deployment; sizes on each device"),
        make("thead", {}, make("tr", {}, ...heads)),
        body,
      );
      units(table);
      const left = found.rows.length - shown;
      $(".kv-after", root).replaceChildren(
        ...(left > 0
          ? [make("button", {
            type: "button",
            class: "kv-button",
            onclick: () => {
              const from = shown;
              shown += PAGE * 10;
              body.append(...found.rows.slice(from, shown).map(line));
              units(table);
              rest();
            },
          }, `Show ${count(Math.min(PAGE * 10, left))} more of ${count(left)}`)]
          : []),
      );
    }

    function rest() {
      const left = found.rows.length - shown;
      const button = $(".kv-after button", root);
      if (left > 0) button.textContent = `Show ${count(Math.min(PAGE * 10, left))} more of ${count(left)}`;
      else button.remove();
    }

    function line(row) {
      const { config } = row;
      const up = new URL("../", location.href);
      const size = (value, text) => make("td", { class: "kv-num kv-size", "data-value": value }, text);
      const number = (value, text) => make("td", { class: "kv-num", "data-value": value }, text);
      const ownLongest = longest(row);
      return make(
        "tr",
        {},
        make(
          "th",
          { scope: "row" },
          make("a", { href: new URL(`models/${config.model.slug}/`, up).href }, config.model.name),
        ),
        make("td", {}, make("a", { href: new URL(`gpus/${config.gpu.id}/`, up).href }, config.gpu.short)),
        number(config.size, String(config.size)),
        number(row.context, tokens(row.context)),
        usersCell(row.users, row.verdict),
        number(row.ceiling, count(row.ceiling)),
        number(ownLongest, roughTokens(ownLongest)),
        make("td", {}, config.weightFormat),
        make("td", {}, config.kvFormat),
        size(config.weights, gib(config.weights)),
        size(config.pool, gib(config.pool)),
        size(row.request, gib(row.request, 3)),
      );
    }

    function longest({ config }) {
      if (config.longest === undefined) {
        config.longest = kvKernel.longestContext(
          config.free,
          config.constant,
          config.terms,
          config.model.limit,
        );
      }
      return config.longest;
    }

    function download() {
      const head =
        "model,gpu,tensor_parallel,weight_format,kv_format,context_tokens,weight_bytes_per_gpu,kv_bytes_per_token_per_gpu,kv_bytes_per_request_per_gpu,kv_pool_bytes_per_gpu,max_concurrent_requests,max_concurrent_requests_ceiling,max_context_tokens,verdict";
      const lines = found.rows.map((row) =>
        [
          row.config.model.id,
          row.config.gpu.id,
          row.config.size,
          row.config.weightFormat,
          row.config.kvFormat,
          row.context,
          row.config.weights,
          row.token,
          row.request,
          row.config.pool,
          row.users,
          row.ceiling,
          longest(row),
          row.verdict,
        ].join(",")
      );
      const url = URL.createObjectURL(new Blob([`${head}\n${lines.join("\n")}\n`], { type: "text/csv" }));
      make("a", { href: url, download: "kvreport-selection.csv" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    }

    function restore() {
      if (!site) return;
      const known = {
        name: null,
        users: null,
        show: ["all"],
        sort: COLUMNS.flatMap((_, n) => [String(n + 1), `-${n + 1}`]),
      };
      for (const facet of facets) known[facet.key] = facet.values.map(([value]) => value);
      ({ state, ignored } = readState(known));
      if (state.users && !/^\d{1,9}$/.test(state.users[0])) {
        ignored.push(`users=${state.users[0]}`);
        delete state.users;
      }
      const all = state.show;
      delete state.show;
      if (!all && !Object.keys(state).length) {
        state = structuredClone(START);
        writeState(state, true);
      }
      shown = PAGE;
      show();
    }

    return { restore };
  }

  kvreport.explore = explore;
})();
