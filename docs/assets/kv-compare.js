/* Up to six models on one accelerator, accelerators for one model, or engines that run one model on one accelerator:
   one chart, one table, equal numbers of GPUs unless something else is chosen. Needs kv-state.js, kv-chart.js, kv-picker.js, kv-result.js. */
(function () {
  "use strict";

  const {
    $,
    make,
    verb,
    load,
    count,
    fixed,
    gib,
    tokens,
    onDevices,
    grid,
    ignoredNote,
    result,
  } = kvreport;
  const FIELDS = "models gpus gpu model tp pp dp ep dcp nodes weights kv engine context".split(" ");
  const LAYOUT = ["tp", "pp", "dp", "ep", "dcp", "nodes"];
  const TERA = 1e12;

  function compare(root) {
    const base = new URL(root.dataset.kvCompare, location.href);
    const most = Number(root.dataset.kvMost);
    const form = $("form", root), said = $(".kv-said", root);
    const field = (name) => form.elements.namedItem(name);
    const known = new Map(), times = new Map(), pickers = {};
    let site = null, home = null, peaks = null, state = {}, ignored = [], turn = 0, shown = [];
    let releases = []; // two of the address that are of one engine
    let between = []; // what tells them apart

    const key = () => (state.engines ? "engines" : state.gpus ? "gpus" : "models");
    const byModels = () => key() === "models";
    const listed = () => state[key()] || [];

    const early = kvreport.changedEarly(form);
    const OWN = ["what", "add-engines", "tp", "per", "weights", "kv", "engine", "context", "prices"];

    Promise.all([kvreport.facts(base), load(new URL("peaks.json", base))]).then(
      ([found, rates]) => {
        [site, home, peaks] = [found, found, rates];
        for (const place of form.querySelectorAll("[data-kv-picker]")) {
          const name = place.dataset.kvName;
          pickers[name] = kvreport.picker(place, base, (id) => picked(name, id));
        }
        for (const name of OWN) field(name).addEventListener("change", () => changed(name));
        form.addEventListener("submit", (event) => event.preventDefault());
        $("[data-kv-csv]", root).addEventListener("click", download);
        // What was changed before the page could answer is kept.
        const touched = early().filter((name) => OWN.includes(name));
        restore();
        touched.forEach(changed);
      },
    ).catch((error) => {
      said.textContent = `The catalog could not be read (${error.message}).`;
    });

    /* --- changes ------------------------------------------------------------------------------------------- */

    function picked(name, id) {
      const list = name.replace("add-", "");
      if (list !== name) go({ [list]: [...new Set([...(state[list] || []), id])].slice(0, most) });
      else go({ [name]: id });
    }

    function changed(name) {
      const value = field(name).value.trim();
      if (name === "what") {
        const model = state.model || (state.models || usualModels())[0];
        const gpu = state.gpu || (state.gpus || [root.dataset.kvGpu])[0];
        const none = {
          models: undefined,
          gpus: undefined,
          engines: undefined,
          model: undefined,
          gpu: undefined,
        };
        if (value === "gpus") go({ ...none, gpus: usualGpus(), model });
        else if (value === "engines") go({ ...none, engines: usualEngines(), engine: undefined, model, gpu });
        else go({ ...none, models: usualModels(state.model), gpu });
        return;
      }
      if (name === "add-engines") {
        if (value) picked(name, value);
        return;
      }
      if (name === "context") {
        const read = value === "" ? undefined : kvState.tokensOf(value);
        field(name).toggleAttribute("aria-invalid", value !== "" && read === undefined);
        if (value !== "" && read === undefined) return;
        go({ context: read });
        return;
      }
      if (name === "tp") {
        const layout = home.layouts.find((one) => one.label === value);
        go(layout ? kvState.stateOf(layout) : { ...kvState.stateOf({}), tp: value || undefined });
        return;
      }
      const none = value === "" || (name === "weights" && value === "released") ||
        (name === "engine" && value === home.engine.name);
      go({ [name]: none ? undefined : value });
    }

    const slugs = () => site.models.map(([slug]) => slug);
    const usualModels = (first) => {
      const usual = root.dataset.kvUsual.split(" ").filter((slug) => slugs().includes(slug));
      return [...new Set([...(first ? [first] : []), ...usual, ...slugs()])].slice(0, 2);
    };
    /* The engine chosen, or the site's own, and the first of each other family. */
    const usualEngines = () => {
      const first = home.engines.find(({ name }) => name === (state.engine || home.engine.name));
      const families = new Map(home.engines.map((one) => [one.family, one.name]).reverse());
      families.set(first.family, first.name).delete("ceiling");
      return [...new Set([first.name, ...families.values()])];
    };
    const usualGpus = () => [...new Set([state.gpu || root.dataset.kvGpu, ...site.known])].slice(0, 3);

    function go(change) {
      state = { ...state, ...change };
      const { engines, per, prices, ...rest } = state;
      let address = kvState.search(rest);
      for (const [name, value] of Object.entries({ engines: engines?.join(), per, prices })) {
        if (value) {
          address += `${address ? "&" : "?"}${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`;
        }
      }
      kvreport.moveTo(address);
      show();
    }

    function restore() {
      if (!site) return;
      ({ state, ignored } = kvState.read(home, FIELDS, ["engines", "per", "prices"], location.search, true));
      const own = kvreport.readState({ engines: null, per: ["gpu"], prices: null });
      const mine = (text) => ["per", "prices"].includes(text.split("=")[0]);
      ignored.push(...own.ignored.filter(mine));
      state.per = own.state.per?.[0];
      state.prices = own.state.prices?.[0];
      const named = (own.state.engines || []).flatMap((text) => text.split(","));
      const read = named.map((text) => [text, kvState.engineOf(home, text)]);
      for (const [text, engine] of read) if (!engine) ignored.push(`engines=${text}`);
      const families = named.map((text) => text.split(/[@-]/)[0]);
      releases = named.length === 2 && families[0] === families[1] ? named : [];
      const engines = [...new Set(read.map(([, engine]) => engine).filter(Boolean))];
      if (engines.length) state.engines = engines;
      // One accelerator beside several, or one model beside several, would stand for nothing.
      const [words, ...idle] = {
        engines: ["engines", "models", "gpus", "engine"],
        gpus: ["accelerators", "models", "gpu"],
        models: ["models", ...(state.models ? ["model"] : [])],
      }[key()];
      for (const name of idle.filter((name) => state[name])) {
        ignored.push(...[].concat(state[name]).map((one) => `${name}=${one} (${words} are compared)`));
        delete state[name];
      }
      if (byModels()) {
        state.models ||= usualModels(state.model);
        delete state.model;
      } else state.model ||= usualModels()[0];
      if (key() !== "gpus") state.gpu ||= root.dataset.kvGpu;
      for (const one of listed().slice(most)) ignored.push(`${key()}=${one}`);
      state[key()] = listed().slice(0, most);
      show();
    }

    /* --- what is compared ---------------------------------------------------------------------------------- */

    function show() {
      const mine = (turn += 1);
      kvreport.busy();
      return answer(mine).catch((error) =>
        mine === turn && clear(`The numbers could not be read (${error.message}). `)
      );
    }

    async function answer(mine) {
      const wanted = byModels() ? listed() : [state.model];
      const engines = state.engines || [state.engine || home.engine.name];
      // Another engine's facts are read by a script that the page does not load for its own.
      const other = engines.some((name) => name !== home.engine.name);
      if (other) await kvreport.script("kv-form.js");
      const sites = await Promise.all(
        engines.map((name) => name === home.engine.name ? home : kvreport.siteFor(base, name)),
      );
      const read = (here, slug) =>
        other ? kvreport.modelFor(base, here, slug) : load(new URL(`models/${slug}.json`, base));
      const missing = [];
      await Promise.all(wanted.flatMap((slug) => [
        ...sites.map((here, n) =>
          read(here, slug).then((model) =>
            model ? known.set(engines[n] + slug, model) : missing.push([here.engine.label, slug])
          )
        ),
        load(new URL(`times/${slug}.json`, base)).then(
          (file) => times.set(slug, file),
          () => times.set(slug, null),
        ),
      ]));
      if (mine !== turn) return;
      [site] = sites;
      const pair = state.engines?.length === 2 ? state.engines : releases;
      const families = new Set(pair.map((name) => name.split(/[@-]/)[0]));
      between = state.engines && families.size === 1 ? await result.rulesBetween(base, home, pair) : [];
      if (mine !== turn) return;
      fill();
      shown = missing.length ? [] : things(new Map(sites.map((one, n) => [engines[n], one])));
      chips();
      if (missing.length) return refuse(missing);
      sentence();
      await kvreport.pause();
      if (mine !== turn) return;
      table();
      await kvreport.pause();
      if (mine !== turn) return;
      draw();
      for (const part of kvreport.$$("[data-kv-after]", root)) part.hidden = false;
      kvreport.busy(false);
      root.dataset.kvShown = location.search;
    }

    /* No comparison of an engine that does not run what is compared; the one before is of another question. */
    const refuse = (missing) =>
      clear(
        ...missing.map(([engine, slug]) => `${engine} ${verb(engine, "does|do")} not run ${nameOf(slug)}. `),
      );

    function clear(...sentences) {
      said.replaceChildren(...sentences, ignoredNote(ignored) || "");
      $("#compare-table", root).replaceChildren();
      $(".kv-plot", root).closest("figure").hidden = true;
      for (const part of [$(".kv-scroll", root), ...kvreport.$$("[data-kv-after]", root)]) part.hidden = true;
      kvreport.busy(false);
      root.dataset.kvShown = location.search;
    }

    /* What a model, an accelerator or an engine is called. */
    const nameOf = (id) =>
      (site.models.find(([slug]) => slug === id) || [])[1] || kvCapacity.gpuOf(site, id)?.short ||
      home.engines.find(({ name }) => name === id)?.label || id;

    function fill() {
      field("what").value = key();
      const layout = kvState.hasLayout(state) ? kvState.layouts(home, state)[0] : null;
      field("tp").value = layout ? layout.label : state.tp || "";
      field("engine").value = state.engine || home.engine.name;
      kvreport.put(field("prices"), state.prices || "");
      field("per").value = state.per || "";
      field("weights").value = state.weights || "released";
      field("kv").value = state.kv || "";
      kvreport.put(field("context"), tokens(state.context || kvKernel.USEFUL_TOKENS));
      field("add-engines").value = "";
      for (const name of ["models", "gpus", "engines"]) $(`.kv-add-${name}`, root).hidden = name !== key();
      $(".kv-one-gpu", root).hidden = key() === "gpus";
      $(".kv-one-model", root).hidden = byModels();
      field("engine").closest(".kv-entry").hidden = key() === "engines";
      const gpu = kvCapacity.gpuOf(site, state.gpu);
      if (gpu) pickers.gpu.set(gpu.id, gpu.name);
      if (state.model) pickers.model.set(state.model, nameOf(state.model));
    }

    const asked = () => state.context || kvKernel.USEFUL_TOKENS;

    /* Whether a model supports the context that is asked for; one that does not has no number that depends on it. */
    const takes = (model) => asked() <= model.limit;

    /* [id, model, accelerator, name, facts under its engine] of everything compared. */
    function pairs(sites) {
      return listed().map((id) => {
        /** @type {any} */
        const at = { ...state, [key().slice(0, -1)]: id };
        const engine = at.engine || home.engine.name;
        const here = sites.get(engine), model = known.get(engine + at.model);
        const gpu = kvCapacity.gpuOf(here, at.gpu);
        return [id, model, gpu, key() === "gpus" ? gpu.short : nameOf(id), here];
      });
    }

    /* The number of GPUs that all get: the fewest on which every one serves that supports the context; the most there
       are where none is enough. */
    function equal(all) {
      const able = all.filter(([, model]) => takes(model));
      const fits = (size) =>
        able.length && able.every(([, model, gpu, , here]) =>
          gpu.devices ||
          kvState.deployments(here, model, gpu, { ...formats(here), tp: size }).some((one) =>
            kvCapacity.serves(one, asked())
          )
        );
      return site.sizes.find(fits) || site.sizes[site.sizes.length - 1];
    }

    const formats = (here) => ({
      weights: state.weights,
      kv: state.kv,
      engine: here === home ? undefined : here.engine.name,
    });

    function things(sites) {
      const all = pairs(sites);
      const named = kvState.hasLayout(state);
      const layout = Object.fromEntries(LAYOUT.map((one) => [one, state[one]]));
      const size = named ? state.tp : state.tp === undefined ? equal(all) : state.tp;
      return all.map(([id, model, gpu, name, here]) => {
        const own = named ? layout : { tp: gpu.devices ? undefined : size };
        const wanted = { ...formats(here), ...own, context: state.context };
        const deployment = kvState.pick(here, model, gpu, wanted);
        const number = deployment ? deployment.devices : size;
        const label = key() !== "gpus" || gpu.devices ? name : onDevices(number, name);
        return {
          id,
          model,
          gpu,
          name,
          label,
          deployment,
          one: result.facts(here, model, gpu, wanted, deployment),
        };
      });
    }

    /* The contexts of the table: up to the longest that any of the models supports. */
    const contexts = () => {
      const limit = Math.max(...shown.map((thing) => thing.model.limit));
      return site.contexts.filter((context, n) => context <= limit || n === 0);
    };

    const per = (
      requests,
      deployment,
    ) => (state.per ? kvKernel.perGpu(requests, deployment.devices) : requests);
    const figure = (number) => (Number.isInteger(number) ? count(number) : number.toFixed(1));

    /* The peak rates of an accelerator; of unequal ones those of the slowest. */
    const ratesOf = (gpu) =>
      (gpu.devices || [gpu]).map((one) => peaks.gpus[one.id]).reduce((a, b) => (b?.bytes < a?.bytes ? b : a));

    /* Tokens per second of one request at the peak rates; null where a rate or the times are not known. */
    function speed({ model, gpu, deployment }) {
      const file = times.get(model.slug), rates = ratesOf(gpu);
      if (!file || !rates || !deployment || !takes(model)) return null;
      const size = deployment.layout.places[0];
      if (!file.weights[deployment.weightFormat]?.[size] || !file.reach[deployment.kvFormat]?.[size]) {
        return null;
      }
      const step = kvCapacity.demandOf(
        file,
        rates,
        deployment.weightFormat,
        deployment.kvFormat,
        size,
        deployment.layout.tp,
      );
      const seconds = kvKernel.decodeSeconds(step, 1, asked());
      return Number.isFinite(seconds) && seconds > 0 ? 1 / seconds : null;
    }

    /* --- the page ----------------------------------------------------------------------------------------------- */

    function chips() {
      const remove = (id, n) => {
        const rest = listed().filter((one) => one !== id);
        go({ [key()]: rest });
        const next = root.querySelectorAll(".kv-chosen button")[Math.min(n, rest.length - 1)];
        if (next instanceof HTMLElement) next.focus();
      };
      $(".kv-chosen", root).replaceChildren(
        ...listed().map((id, n) =>
          make("button", {
            type: "button",
            class: "kv-chip",
            "aria-label": `Remove ${nameOf(id)}`,
            onclick: () => remove(id, n),
          }, `${nameOf(id)} ×`)
        ),
      );
    }

    function sentence() {
      const noun =
        { models: "model|models", gpus: "accelerator|accelerators", engines: "engine|engines" }[key()];
      const where = [
        byModels() ? "" : ` for ${nameOf(state.model)}`,
        key() === "gpus" ? "" : ` on ${kvCapacity.gpuOf(site, state.gpu).name}`,
      ].join("");
      const sizes = [...new Set(shown.map((thing) => thing.deployment?.devices).filter(Boolean))];
      const number = sizes.length === 1
        ? `${kvreport.plural(sizes[0], "GPU|GPUs")} each`
        : "the fewest GPUs that fit each";
      const full = listed().length >= most
        ? ` At most ${most} can be compared.`
        : listed().length < 2 && !between.length
        ? " Add another one to compare."
        : "";
      const missed = shown.flatMap((thing) => kvState.unused(state, thing.deployment));
      said.replaceChildren(
        make("strong", {}, winner()),
        `${kvreport.plural(shown.length, noun)}${where}, ${number}${
          state.engines ? "" : `, ${site.engine.label}`
        }.${why(sizes)}${cached()}${beyond()}${full}`,
        ignoredNote([...ignored, ...priced().unread, ...new Set(missed)]) || "",
        ...between,
        ...elsewhere(),
      );
    }

    /* The command that compares two releases which the address asks for. */
    function elsewhere() {
      if (!state.engines || !releases.some((text) => text.includes("@"))) return [];
      const command = kvState.diffCommand(releases, { ...state, context: asked() });
      return [" The command line compares them: ", make("code", {}, command)];
    }

    /* Bytes that one token takes in the cache of the whole model, at the chosen context. */
    const tokenOf = ({ model, deployment }) =>
      kvCapacity.wholeToken(deployment, Math.min(asked(), model.limit));
    const kib = (bytes) => fixed(bytes / 1024, 1);

    /* Which of several models takes the most cache for a token, and by how much, as a sentence. */
    function cached() {
      if (!byModels()) return "";
      const able = shown.filter(({ deployment }) => deployment)
        .map((thing) => [thing.name, tokenOf(thing)]).filter(([, bytes]) => bytes > 0)
        .sort(([, a], [, b]) => b - a);
      if (able.length < 2) return "";
      const [[first, most]] = able, [last, least] = able[able.length - 1];
      if (most === least) return ` A token takes ${kib(most)} KiB of KV cache in each of them.`;
      const reserves = (name) => {
        const { model, deployment } = shown.find((thing) => thing.name === name);
        const context = Math.min(asked(), model.limit);
        return gib(kvCapacity.reservedBytes(kvCapacity.told(deployment, context), context));
      };
      return ` A token takes the most KV cache in ${first}: ${kib(most)} KiB, compared with ${
        kib(least)
      } KiB in ${last} (${fixed(most / least, most / least < 1.1 ? 2 : 1)} times as much). One request of ${
        tokens(asked())
      } tokens reserves ${reserves(first)} GiB on each GPU of ${first} and ${
        reserves(last)
      } GiB of ${last}. Windows also keep room for prompts in progress.`;
    }

    /* Which one runs the most requests at once, and by how much, as a sentence. */
    function winner() {
      const able = shown.filter(({ model, deployment }) => deployment && takes(model));
      const all = able.map(({ label, deployment }) => {
        const { users } = kvCapacity.serve(deployment, asked());
        return [label, per(users, deployment)];
      }).sort(([, a], [, b]) => b - a);
      if (shown.length < 2 || !all.length) return "";
      const form = state.weights && field("weights").selectedOptions[0]?.textContent.split(",")[0].trim();
      const what = `requests of ${tokens(asked())} tokens${state.per ? " per GPU" : ""}${
        form ? ` with weights in ${form}` : ""
      }`;
      const [[first, most], [next, less] = []] = all;
      if (!most) return `None serves ${what}. `;
      if (!less) return `Only ${first} ${verb(first, "serves|serve")} ${what}: ${figure(most)}. `;
      if (most === less) return `${first} and ${next} serve as many ${what}: ${figure(most)}. `;
      return `${first} ${verb(first, "serves|serve")} the most ${what}: ${figure(most)}, compared with ${
        figure(less)
      } for ${next} (${fixed(most / less, most / less < 1.1 ? 2 : 1)} times as many). `;
    }

    /* Why one engine serves more than another: the bytes that differ most, or the limit of its scheduler. */
    function whyEngines() {
      const able = shown.filter(({ model, deployment }) => deployment && takes(model)).map((thing) => {
        const told = kvCapacity.told(thing.deployment, asked());
        return { name: thing.name, told, answer: kvCapacity.serve(told, asked()) };
      });
      const [least, most] = [Math.min, Math.max].map((of) => {
        const users = of(...able.map(({ answer }) => answer.users));
        return able.find(({ answer }) => answer.users === users);
      });
      if (!least || least.answer.users === most.answer.users) return "";
      if (least.answer.limitedBy === "max_num_seqs") {
        return ` Why: memory would hold ${count(least.answer.held)} on ${least.name}, but at most ${
          count(least.answer.users)
        } run at once (max_num_seqs).`;
      }
      const label = (name) => kvKernel.words.waterfall[name];
      const sizes = ({ told, answer }) => {
        const parts = kvCapacity.reserveParts(told);
        const kept = told.gpu.usable - told.memory;
        return [
          [label("weights").toLowerCase(), told.resident],
          ...(parts && kvCapacity.reserveParts(least.told) && kvCapacity.reserveParts(most.told)
            ? [
              ["memory not given to the engine", kept],
              [label("activations").toLowerCase(), parts.activations],
              [label("outside").toLowerCase(), parts.outside],
              [label("graphs"), parts.graphs],
            ]
            : [["memory that the engine keeps free or reserves", kept + told.reserve]]),
          ["KV cache of one request", answer.request],
        ];
      };
      const few = sizes(least), many = sizes(most);
      const parts = few.map(([name, bytes], n) => ({ name, bytes, other: many[n][1] }))
        .filter(({ bytes, other }) => Math.abs(bytes - other) >= 2 ** 30 / 100)
        .sort((a, b) => (b.bytes - b.other) - (a.bytes - a.other));
      const said = (some) =>
        some.map(({ name, bytes, other }) => `${name} ${gib(bytes)} in place of ${gib(other)} GiB`).join(
          ", ",
        );
      const more = said(parts.filter(({ bytes, other }) => bytes > other));
      const less = said(parts.filter(({ bytes, other }) => bytes < other));
      return ` Why: the KV pool is ${gib(least.told.pool)} GiB per GPU on ${least.name} and ${
        gib(most.told.pool)
      } GiB on ${most.name}.${more && ` ${least.name} ${verb(least.name, "needs|need")} more for: ${more}.`}${
        less && ` ${verb(least.name, "It needs|They need")} less for: ${less}.`
      }`;
    }

    /* Where accelerators differ by more than twice: what the weights leave on each, and that the sizer gives each its own
       number. */
    function why(sizes) {
      if (state.engines) return whyEngines();
      const able = shown.filter(({ model, deployment }) => deployment && takes(model));
      if (key() !== "gpus" || able.length < 2 || sizes.length > 1) return "";
      if (able.some(({ gpu }) => gpu.devices)) return "";
      const users = able.map(({ deployment }) => kvCapacity.serve(deployment, asked()).users);
      const least = users.indexOf(Math.min(...users)), most = users.indexOf(Math.max(...users));
      if (users[most] <= 2 * users[least]) return "";
      const each = [most, least].map((n) => {
        const { deployment, gpu } = able[n];
        return `${gib(deployment.pool)} GiB of KV pool on each ${gpu.short}`;
      });
      const weights = gib(able[least].deployment.resident);
      return ` Why: loaded weights of ${weights} GiB per GPU leave ${each.join(" and ")}.${
        sizes[0] > 1
          ? " The sizer gives each type of GPU its own number, so two types may cost the same there."
          : ""
      }`;
    }

    /* What the context leaves out, as a sentence. */
    function beyond() {
      const over = [...new Set(shown.map((thing) => thing.model))].filter((model) => !takes(model));
      if (!over.length) return "";
      const names = over.map((model) => `${model.name} (at most ${tokens(model.limit)})`).join(", ");
      return ` Requests of ${
        tokens(asked())
      } tokens exceed the limit of ${names}, so there are no numbers at that length${
        byModels() ? ", and these models do not decide the number of GPUs" : ""
      }.`;
    }

    /* Prices per GPU-hour, as "h100=2.5, b200=5": by accelerator, and what is no price. */
    function priced() {
      const prices = new Map(), unread = [];
      const plain = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");
      for (const part of (state.prices || "").split(",").map((text) => text.trim()).filter(Boolean)) {
        const [, name, value] = /^(.+?)\s*=\s*(\d+(?:\.\d+)?)$/.exec(part) || [];
        const found = name ? home.gpus.filter((gpu) => plain(gpu.id).startsWith(plain(name))) : [];
        if (!found.length || !(Number(value) > 0)) unread.push(`price ${part}`);
        for (const gpu of found) prices.set(gpu.id, Number(value));
      }
      return { prices, unread };
    }

    const HEADS = [
      ["GPUs", ""],
      ["Longest context", "tokens"],
      ["Stored weights per GPU", "GiB"],
      ["KV cache per token", "KiB"],
      ["Memory bandwidth per GPU", "TB/s"],
      ["Maximum speed", "tokens/s"],
    ];
    const PRICES = [["Price", "per hour"], ["Price per request", "per hour"]];
    const heads = () => (priced().prices.size ? [...HEADS, ...PRICES] : HEADS);

    /* What a deployment costs per hour, and each of the requests that it runs at once at the chosen context. */
    function prices(deployment, gpu, model) {
      const all = (gpu.devices || [gpu]).map((one) => priced().prices.get(one.id));
      const each = all.reduce((sum, one) => sum + one, 0) / all.length;
      if (!deployment || !Number.isFinite(each)) return { price: null, perRequest: null };
      const price = each * deployment.devices;
      const users = takes(model) && kvCapacity.serve(deployment, asked()).users;
      return { price, perRequest: users ? price / users : null };
    }

    function row(thing) {
      const { deployment, gpu, one } = thing;
      const bandwidth = ratesOf(gpu)?.bytes, fast = speed(thing);
      return {
        devices: deployment ? deployment.devices : null,
        requests: deployment
          ? contexts().map((context) => [context, kvCapacity.serve(deployment, context)])
          : [],
        longest: deployment ? deployment.longest : null,
        weights: deployment ? deployment.weights : null,
        token: deployment ? tokenOf(thing) : null,
        bandwidth: bandwidth ? bandwidth / TERA : null,
        speed: fast,
        ...prices(deployment, gpu, thing.model),
        one,
      };
    }

    function table() {
      const up = new URL("../", location.href);
      const page = (thing) => new URL(`${key()}/${thing.id}/`, up).href;
      const [over] = kvKernel.words.no_request.context_exceeds_model;
      const rows = shown.map((thing) => {
        const facts = row(thing);
        const unlisted = state.engines || (state.gpus && thing.gpu.devices);
        const title = unlisted ? thing.name : make("a", { href: page(thing) }, thing.name);
        if (!facts.devices) {
          const why = result.conclusion(thing.one).replaceAll("**", "");
          const colspan = contexts().length + heads().length;
          return [title, make("td", { class: "kv-no kv-why", colspan }, why)];
        }
        return [
          title,
          String(facts.devices),
          ...facts.requests.map(([context, answer]) => cell(answer, thing, context)),
          count(facts.longest),
          gib(facts.weights),
          Number.isFinite(facts.token) ? kib(facts.token) : over,
          facts.bandwidth ? facts.bandwidth.toFixed(2) : "unknown",
          facts.speed ? count(Math.round(facts.speed)) : takes(thing.model) ? "unknown" : over,
          ...(priced().prices.size
            ? [
              facts.price === null ? "not given" : facts.price.toFixed(3),
              facts.perRequest !== null
                ? facts.perRequest.toFixed(3)
                : takes(thing.model)
                ? facts.price === null ? "not given" : "none fits"
                : over,
            ]
            : []),
        ];
      });
      const what = { models: "Model", gpus: "GPU or accelerator", engines: "Engine and release" }[key()];
      const titles = [HEADS[0], ...contexts().map((context) => [tokens(context), ""]), ...heads().slice(1)];
      const made = grid(
        `Concurrent requests${state.per ? " per GPU" : ""} by context per request (tokens)`,
        [what, ...titles.map(([title, unit]) => [title, unit && make("span", { class: "kv-unit" }, unit)])],
        rows,
      );
      $("#compare-table", root).replaceChildren(...$("table", made).children);
    }

    function cell(answer, thing, context) {
      const made = result.whyCell(answer, thing.one, context);
      if (state.per && answer.users > 0 && answer.verdict !== "context_exceeds_model") {
        made.textContent = figure(per(answer.users, thing.deployment));
      }
      return made;
    }

    function draw() {
      const lines = shown.filter((thing) => thing.deployment).map((thing) => ({
        name: thing.label,
        points: result.line(thing.deployment, site.contexts)
          .map(([context, requests]) => [context, per(requests, thing.deployment)])
          .filter(([, requests]) => requests >= 1),
      })).filter((line) => line.points.length);
      $(".kv-scroll", root).hidden = false;
      const plot = $(".kv-plot", root);
      plot.closest("figure").hidden = !lines.length;
      if (lines.length) kvreport.chart(plot, { lines, equal: true });
    }

    function download() {
      const heads = [
        key().slice(0, -1),
        "gpus",
        ...contexts().map((context) => `requests_at_${context}`),
        "longest_tokens",
        "weights_bytes_per_gpu",
        "kv_bytes_per_token",
        "bandwidth_tb_per_s_per_gpu",
        "speed_bound_tokens_per_s",
        "price_per_hour",
        "price_per_request_hour",
      ];
      const quote = String.fromCharCode(34);
      const text = (value) => {
        const plain = value === null || value === undefined ? "" : String(value);
        return plain.includes(",") ? quote + plain + quote : plain; // ids and numbers hold no quotes
      };
      const lines = shown.map((thing) => {
        const facts = row(thing);
        const requests = contexts().map((_, n) =>
          facts.requests[n] ? per(facts.requests[n][1].users, thing.deployment) : null
        );
        return [
          thing.id,
          facts.devices,
          ...requests,
          facts.longest,
          facts.weights,
          facts.token,
          facts.bandwidth,
          facts.speed,
          facts.price,
          facts.perRequest,
        ];
      });
      const content = [heads, ...lines].map((line) => line.map(text).join(",")).join("\r\n");
      kvreport.save(`${content}\r\n`, "text/csv", "kvreport-compare.csv");
    }

    const redraw = kvreport.debounce(() => site && draw(), 150);
    addEventListener("resize", redraw);
    return { restore, release: () => removeEventListener("resize", redraw) };
  }

  kvreport.compare = compare;
})();
