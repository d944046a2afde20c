/* The box for free text: a question becomes a state of the page, or the way to where it is answered stands in the
   answer's place. Needs kv-picker.js, kv-ask.js, kv-answers.js. */
(function () {
  "use strict";

  const { $, load } = kvreport;

  function askBox(form) {
    const base = new URL(form.dataset.kvAsk, location.href);
    const field = $("input", form), told = $("[data-kv-understood]", form);
    const answer = async () => {
      const [site, file] = await Promise.all([
        kvreport.facts(base),
        load(new URL("picker.json", base)),
      ]);
      const names = kvreport.asked.prepared(file);
      const found = kvreport.asked.understand(field.value, site, names);
      told.textContent = kvreport.asked.said(found, names);
      const way = kvreport.asked.wayTo(field.value, found, site, names);
      if (way) {
        kvreport.unanswered?.(way, field.value);
        return;
      }
      await kvreport.go?.({ ...kvreport.now(), ...fresh(found.state), ...found.state });
      kvreport.remark?.(notUsed(found, site));
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      answer();
    });
    // The form was sent before its script was there, or the reader came back: the question stands in the address.
    const restore = () => {
      const sent = new URLSearchParams(location.search).get("ask");
      if (!sent) return;
      field.value = sent;
      setTimeout(() => kvreport.ready?.then(answer));
    };
    restore();
    return { restore };
  }

  /* What of a question its answer does not depend on, and what was taken where nothing was said. */
  function notUsed({ missed, asks, state }, site) {
    const words = [...missed, ...asks];
    const gpu = site.gpus.find((one) => one.id === kvreport.now().gpu);
    return [
      words.length && `Not used: ${words.join(", ")}.`,
      !state.gpu && gpu && `No GPU was named: this is the answer for ${gpu.name}.`,
    ].filter(Boolean).join(" ");
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
