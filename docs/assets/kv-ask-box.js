/* The box for free text: a question becomes a state of the page, and leads on where another page answers it. Needs
   kv-picker.js, kv-ask.js, kv-answers.js. */
(function () {
  "use strict";

  const { $, make, load } = kvreport;

  function askBox(form) {
    const base = new URL(form.dataset.kvAsk, location.href);
    const field = $("input", form), told = $("[data-kv-understood]", form);
    const answer = async () => {
      const [site, file] = await Promise.all([
        kvreport.facts(base),
        load(new URL("picker.json", base)),
      ]);
      const found = kvreport.asked.understand(field.value, site, kvreport.asked.prepared(file));
      told.textContent = kvreport.asked.said(found);
      const machine = found.home.filter((word) => !kvreport.asked.AT_HOME.test(word)).join(" ");
      if (found.home.length) {
        const programs = machine ? " with llama.cpp, Ollama or MLX" : "";
        told.append(` For ${found.home.join(", ")}${programs}: `, atHome(file, found.state, machine), ".");
        if (found.understood.length && !found.state.gpu) told.append(" Below: the answer for servers.");
      } else if (site.gpus.find((gpu) => gpu.id === found.state.gpu)?.most === 1) {
        told.append(" With llama.cpp or Ollama: ", atHome(file, found.state), ".");
      }
      // A size that no name has: the model that was found is another one.
      const unlisted = found.unlisted || found.missed.some((word) => /^\d+(\.\d+)?b$/.test(word));
      if (unlisted || (!found.state.model && found.missed.length)) {
        told.append(" Is a model not listed? ", yourModel(), ".");
      }
      const page = elsewhere(field.value, found, site);
      if (page) told.append(" See also: ", page, ".");
      if (found.understood.length) {
        kvreport.go?.({ ...kvreport.now(), ...fresh(found.state), ...found.state });
      }
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      answer();
    });
    // The form was sent before its script was there: the question stands in the address.
    const sent = new URLSearchParams(location.search).get("ask");
    if (sent) {
      kvreport.put(field, sent);
      setTimeout(() => kvreport.ready?.then(answer));
    }
    return null;
  }

  /* The way to the page that answers what one model on one GPU does not: several of them, which GPU, which model. */
  function elsewhere(text, { state, gpus }, site) {
    if (gpus.length || /\b(compare[ds]?|vs|versus)\b/i.test(text)) {
      const address = new URL("compare/", kvreport.root);
      if (gpus.length) {
        for (const gpu of [state.gpu, ...gpus]) address.searchParams.append("gpus", gpu);
        if (state.model) address.searchParams.set("model", state.model);
      }
      return make("a", { href: address.href }, "compare models or GPUs");
    }
    const one = site.gpus.find((gpu) => gpu.id === state.gpu);
    if (one && !state.model) {
      const address = new URL(`gpus/${one.id}/`, kvreport.root);
      if (state.context) address.searchParams.set("context", state.context);
      return make("a", { href: address.href }, `every model on ${one.name}`);
    }
    const which =
      /\b(what|which|how many|cheapest|best) (gpus?|cards?|hardware|server)\b|\b(costs?|prices?)\b/i;
    if (state.gpu || !which.test(text)) return null;
    const address = new URL("sizer/", kvreport.root);
    if (state.model) address.searchParams.set("model", state.model);
    if (state.requests) address.searchParams.set("concurrent", state.requests);
    return make("a", { href: address.href }, "size a deployment");
  }

  const yourModel = () =>
    make("a", { href: new URL("your-model/", kvreport.root).href }, "Your model reads its config");

  /* The way to what runs with the programs of one computer: an accelerator of the site, or a machine in words. */
  function atHome(file, state, words = "") {
    const machine = file.gpus.find(([id]) => id === state.gpu);
    const address = new URL("local/", kvreport.root);
    const name = machine ? machine[1] : words;
    if (name) address.searchParams.set("name", name);
    return make("a", { href: address.href }, "what runs on your machine");
  }

  /* A new question has no layout or format of the one before. */
  const fresh = (state) => ({
    ...Object.fromEntries(
      "pp dp ep dcp nodes weights kv engine requests share batched seqs eager".split(" ").map((
        name,
      ) => [name, undefined]),
    ),
    tp: state.tp === undefined ? "fewest" : state.tp,
  });

  Object.assign(kvreport, { askBox });
})();
