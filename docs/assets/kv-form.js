/* What a form with a state needs wherever it stands: the facts that an engine's files have, the fields of the form, and
   what of a state an answer does not use. Needs kv-state.js, kv-result.js. */
(function () {
  "use strict";

  const { $, load, ignoredNote, result } = kvreport;

  const TEXTS = {
    context: kvState.tokensOf,
    requests: (text) => kvState.tokensOf(text),
    share: kvState.shareOf,
    batched: (text) => kvState.tokensOf(text),
    seqs: (text) => kvState.tokensOf(text),
  };

  /* The site's facts under an engine: its own, or those of another engine's file. `one`: as in kvreport.facts. */
  async function siteFor(base, name, one) {
    const site = await kvreport.facts(base, one);
    if (!name || name === site.engine.name || name === "ceiling") return site;
    const other = await load(new URL(`engines/${name}.json`, base));
    return kvCapacity.underEngine(site, other);
  }

  /* A model's facts under an engine. */
  async function modelFor(base, site, slug) {
    const model = await load(new URL(`models/${slug}.json`, base));
    if (site.engine.name === site.engine.default) return model;
    if (!site.published.includes(slug)) return null;
    return kvCapacity.decided(model, await load(new URL(`engines/${site.engine.name}/${slug}.json`, base)));
  }

  /* Open the explanation of a state that names its model, accelerator, number of GPUs and context. */
  async function whyOf(base, state) {
    const site = await siteFor(base, state.engine);
    const model = await modelFor(base, site, state.model);
    const gpu = kvCapacity.gpuOf(site, state.gpu);
    const deployment = kvState.deployments(site, model, gpu, state).pop();
    if (deployment) await result.why(result.facts(site, model, gpu, state, deployment), state.context);
  }

  const DEFAULTS_ONLY =
    "For {engine} this page has numbers for the default memory share and scheduler only; the command line has all.";

  /* The state without the settings that an engine's files do not cover, or that no engine has. */
  function settled(site, state) {
    const settings = ["share", "batched", "seqs", "eager"];
    const none = site.engine.family === "sglang" || state.engine === "ceiling";
    if (!none || settings.every((name) => state[name] === undefined)) return state;
    return { ...state, ...Object.fromEntries(settings.map((name) => [name, undefined])) };
  }

  /* What stands beside an answer: what of the address it does not use, and which of the state's settings. */
  function leftOut(site, state, settled, ignored) {
    const names = Object.keys(state).filter((name) => state[name] !== settled[name]);
    const settings = names.map((name) => `${kvState.keyOf(name)}=${state[name] === true ? 1 : state[name]}`);
    const why = names.length && state.engine !== "ceiling"
      ? DEFAULTS_ONLY.replace("{engine}", site.engine.label)
      : "";
    return [why, ignoredNote([...ignored, ...settings]) || ""];
  }

  /* Read a form's fields into a state, and write a state into them. */
  function formOf(form, site) {
    const field = (name) => form.elements.namedItem(name);
    const told = $("[data-kv-told]", form.parentElement) || form.nextElementSibling;
    /* Show a layout in its field; one that only an address or a question names becomes an option. */
    function choose(select, layout) {
      const known = !layout || Array.from(select.options).some((one) => one.value === layout.label);
      if (!known) {
        const number = kvreport.plural(layout.devices, "GPU|GPUs");
        select.append(new Option(`${number}: ${result.ways(layout)}`, layout.label));
      }
      select.value = layout ? layout.label : "";
    }

    function write(state) {
      const layout = kvState.hasLayout(state) ? kvState.layouts(site, state)[0] : null;
      if (field("layout")) choose(field("layout"), layout);
      for (const name of ["weights", "kv", "engine"]) {
        if (field(name)) field(name).value = state[name] || field(name).options[0].value;
      }
      for (const name of Object.keys(TEXTS)) {
        if (!field(name)) continue;
        const value = state[name];
        const text = value === undefined ? "" : name === "context" ? kvreport.tokens(value) : String(value);
        if (kvreport.put(field(name), text)) field(name).removeAttribute("aria-invalid");
      }
    }
    /* The change of one field; null where it is not understood. */
    function change(name) {
      const value = field(name).value.trim();
      if (name === "layout") {
        const layout = kvState.everyLayout(site).find((one) => one.label === value);
        return layout ? kvState.stateOf(layout) : { ...kvState.stateOf({}), tp: "fewest" };
      }
      if (!(name in TEXTS)) {
        const first = field(name).options[0].value;
        return { [name]: value === first ? undefined : value };
      }
      if (value === "") return { [name]: undefined };
      const read = TEXTS[name](value);
      field(name).toggleAttribute("aria-invalid", read === undefined);
      return read === undefined ? null : { [name]: read };
    }
    return { write, change, told, field };
  }

  Object.assign(kvreport, { formOf, siteFor, modelFor, whyOf, settled, leftOut });
})();
