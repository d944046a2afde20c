/* Pages whose answer follows a state: the front page and the model pages. A form changes the state, the address keeps
   it, and the page's places are filled from it; as long as nothing differs from what the page was printed with,
   the page stays as it is. Needs kv-state.js, kv-chart.js, kv-show.js, kv-form.js; kv-picker.js and
   kv-why.js come when they are used. */
(function () {
  "use strict";

  const { $, $$, make, ignoredNote, result, formOf, siteFor, modelFor, settled, leftOut } = kvreport;

  const FIELDS = "model gpu tp pp dp ep dcp nodes weights kv engine context requests share batched seqs eager"
    .split(" ");
  /* One page with a state. render(root, one, chosen, wanted) fills what is the page's own; chosen
     says that the reader chose a layout, wanted() that no other state was asked for since. */
  function stateful(form) {
    const base = new URL(form.dataset.kvState, location.href);
    const start = JSON.parse($("template.kv-start", form).content.textContent);
    const root = form.closest(".md-content") || document.body;
    const slots = $$("[data-kv-slot]", root).map((slot) => [slot, Array.from(slot.childNodes)]);
    const page = kvreport.pages?.[form.dataset.kvPage];
    const early = kvreport.changedEarly(form);
    let site = null, controls = null, state = { ...start }, turn = 0, plots = null;
    const pickers = {};

    /* The page of one model needs no other's name. */
    const alone = form.dataset.kvPage === "model" ? [start.model, start.model] : undefined;
    const ready = kvreport.facts(base, alone).then((found) => {
      site = found;
      controls = formOf(form, site);
      kvreport.wake().then(() => kvreport.script("kv-picker.js")).then(enter).catch(() => {
        /* the links to the lists stay */
      });
      for (const field of $$("select, input:not([role=combobox])", form)) {
        field.addEventListener("change", () => changed(field.name));
      }
      $("[data-kv-reset]", form).addEventListener("click", () => go({ ...start }));
      form.addEventListener("submit", (event) => event.preventDefault());
      kvreport.go = go;
      kvreport.now = () => state;
      Object.assign(kvreport, { unanswered, remark });
    });

    /* The links to the lists of models and accelerators become fields to type into when the reader begins to do
       something. */
    const places = $$("[data-kv-picker]", form);
    function enter() {
      for (const place of places) {
        const name = place.dataset.kvName;
        pickers[name] = kvreport.picker(place, base, (id) => go({ ...state, ...unsplit(), [name]: id }));
      }
    }

    const untouched = () => ["tp", "pp", "dp", "ep", "dcp"].every((name) => state[name] === start[name]);

    /* Another model or accelerator takes its own number of GPUs, unless the reader chose one. */
    const unsplit = () => (untouched() ? { tp: undefined } : {});

    function changed(...names) {
      const changes = names.map((name) => controls.change(name));
      const wrong = names.filter((_, n) => changes[n] === null);
      const shown = names.length > wrong.length && go(Object.assign({ ...state }, ...changes));
      if (!wrong.length) return;
      Promise.resolve(shown).then(() => {
        controls.told.textContent = wrong.map((name) =>
          `“${controls.field(name).value}” is not understood; see the example under the field.`
        ).join(" ");
      });
    }

    /* Take a state: into the address, the form and the page. */
    function go(next, replace) {
      state = next;
      const search = kvState.search(state, start);
      kvreport.moveTo(search, replace);
      return show([]);
    }

    async function show(ignored) {
      const mine = (turn += 1);
      kvreport.busy();
      await ready;
      remark();
      controls.write(state);
      const printed = kvState.search(state, start) === "";
      $("[data-kv-reset]", form).toggleAttribute("hidden", printed);
      controls.told.replaceChildren(ignoredNote(ignored) || "");
      if (printed) {
        for (const [slot, nodes] of slots) {
          slot.replaceChildren(...nodes);
          slot.toggleAttribute("hidden", !nodes.length);
        }
        plots?.release();
        plots = kvreport.plots(root);
        result.titled(root, true);
        await page?.restore?.(root, base, site);
        names();
        notKnown(ignored);
        done();
        return;
      }
      try {
        const here = await siteFor(base, state.engine, alone);
        const model = await modelFor(base, here, state.model);
        if (mine !== turn) return;
        if (!model) {
          const name = site.models.find(([slug]) => slug === state.model)[1];
          fillOnly({
            headline: [
              `${here.engine.label} ${kvreport.verb(here.engine.label, "does|do")} not run ${name}.`,
            ],
          });
          names();
          return done();
        }
        const gpu = kvCapacity.gpuOf(here, state.gpu);
        for (const [slot] of slots) slot.toggleAttribute("hidden", false);
        const told = settled(here, state);
        const deployment = kvState.fewest(here, model, gpu, told);
        const missed = kvState.unused(told, deployment);
        controls.told.replaceChildren(...leftOut(here, state, told, [...ignored, ...missed]));
        const one = result.facts(here, model, gpu, told, deployment);
        result.show(root, one, result.elsewhere(one));
        result.titled(root);
        await page?.render?.(root, one, kvState.hasLayout(state) && !untouched(), () => mine === turn);
        if (mine !== turn) return;
        names();
        notKnown(ignored);
      } catch (error) {
        if (mine !== turn) return;
        fillOnly({ headline: [`The numbers of this engine could not be read (${error.message}).`] });
      }
      done();
    }

    /* The answer is of another model or GPU than the address names: say so where it stands. */
    function notKnown(ignored) {
      const known = [...site.gpus.map(({ id }) => id), ...site.models.map(([slug]) => slug)];
      const wrong = ignored.filter((text) =>
        /^(gpu|model)=[^(]*$/.test(text) && !known.includes(text.replace(/^\w+=/, ""))
      );
      if (!wrong.length) return;
      const words = wrong.map((text) => `“${text.replace(/^\w+=/, "")}”`).join(" and ");
      const name = wrong[0].startsWith("gpu=")
        ? kvCapacity.gpuOf(site, state.gpu).name
        : site.models.find(([slug]) => slug === state.model)[1];
      remark(make(
        "strong",
        { class: "kv-wrong", role: "alert" },
        `The address names ${words}, which is not known here. The answer below is for ${name}.`,
      ));
    }

    /* Nothing of an answer but these parts: the one that stood here is of another question. */
    function fillOnly(filled) {
      for (const [slot] of slots) {
        const nodes = filled[slot.dataset.kvSlot] || [];
        slot.replaceChildren(...nodes);
        slot.toggleAttribute("hidden", !nodes.length);
      }
      plots?.release();
      plots = null;
      result.titled(root, true);
    }

    /* A sentence above the answer: what of a question it does not depend on. */
    function remark(...said) {
      $("[data-kv-remark]", root)?.remove();
      if (!said.some(Boolean)) return;
      const note = make("p", { class: "kv-note", "data-kv-remark": "" }, ...said);
      $("[data-kv-slot=headline]", root)?.before(note);
    }

    /* No answer of this page, but the way to one: {said, links: [[text, address]], command}. The address keeps the question. */
    function unanswered({ said, links, command, more = [] }, question, understood) {
      turn += 1;
      // The form says what was understood, and no more: the case that stood in it is of another question.
      state = { ...start, tp: undefined, ...understood };
      controls.write({ ...understood, engine: understood.engine || start.engine });
      for (const kind of ["model", "gpu"]) if (!understood[kind]) named(kind, "", "");
      names(understood);
      const address = `${location.pathname}?ask=${encodeURIComponent(question).replace(/%20/g, "+")}`;
      if (address !== location.pathname + location.search) {
        history[location.search.startsWith("?ask=") ? "replaceState" : "pushState"](
          history.state,
          "",
          address,
        );
      }
      remark();
      const way = links.map(([text, page]) => make("a", { href: new URL(page, kvreport.root).href }, text));
      fillOnly({
        headline: [said, ...more],
        conditions: way.flatMap((link, n) => (n ? [" · ", link] : [link])),
        commands: command
          ? [make("p", { class: "kv-note" }, "On the command line:"), kvreport.command(command)]
          : [],
      });
      $("[data-kv-reset]", form).toggleAttribute("hidden", false);
      done();
    }

    function names(said = state) {
      const model = site.models.find(([slug]) => slug === said.model);
      const gpu = kvCapacity.gpuOf(site, said.gpu);
      if (model) named("model", model[0], model[1]);
      if (gpu) named("gpu", gpu.id, gpu.name);
    }

    /* Show a name in its field, or in the link that will be one. */
    function named(kind, id, name) {
      if (pickers[kind]) return pickers[kind].set(id, name);
      for (const place of places) {
        if (place.dataset.kvName !== kind) continue;
        place.dataset.kvValue = id;
        place.textContent = name;
      }
    }

    /* Tell whoever waits that the page is what the address says. */
    const done = () => {
      if (!kvreport.asking) kvreport.busy(false); // what was asked in words is answered next
      const chosen = kvState.search(state, start) !== "";
      for (const note of $$("[data-kv-example]", root)) note.toggleAttribute("hidden", !chosen);
      root.dataset.kvShown = location.search || "printed";
    };

    async function restore() {
      kvreport.asking = new URLSearchParams(location.search).has("ask") && Boolean($("[data-kv-ask]"));
      await ready;
      const touched = turn === 0 ? early() : [];
      const also = ["name", "ask", ...page?.keys || []];
      const { state: asked, ignored } = kvState.read(site, FIELDS, also, location.search, true);
      const layout = "tp" in asked || "pp" in asked || "dp" in asked || "dcp" in asked;
      const fresh = asked.model && asked.model !== start.model || asked.gpu && asked.gpu !== start.gpu;
      const kept = { ...start };
      if (layout || fresh) { for (const name of ["tp", "pp", "dp", "ep", "dcp", "nodes"]) delete kept[name]; }
      state = { ...kept, ...asked };
      if (touched.length) changed(...touched);
      else await show(ignored);
    }

    page?.start?.(root);
    kvreport.ready = restore();
    kvreport.ready.catch(kvreport.unloaded);
    return {
      restore: () => restore(),
      release: () => {
        Object.assign(kvreport, { go: undefined, unanswered: undefined, remark: undefined });
        plots?.release();
      },
    };
  }

  Object.assign(kvreport, { stateful });
})();
