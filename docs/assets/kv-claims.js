/* The form of the claims ledger: the exact command always, and the ledger's own judgment, by the library in this browser,
   on a click. What is typed is in no address and in no request; a link may fill the form in. */
(function () {
  "use strict";

  const { $, $$, definitions, make } = kvreport;

  function claims(form) {
    const release = form.dataset.kvRuns ? kvreport.ownPolicy() : () => {};
    if (!release) return null;
    const command = $("[data-kv-command]", form);
    const box = $("[data-kv-judged]", form.parentElement);
    const library = kvreport.library(form, new URL(form.dataset.kvPython, location.href).href);
    const fields = $$("input, select", form);
    let turn = 0;

    const given = () => Object.fromEntries(fields.map((field) => [field.name, field.value.trim()]));
    const quoted = (text) => (/^[\w.,:@%+\/-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

    function write() {
      turn += 1;
      box.replaceChildren();
      const said = Object.entries(given()).filter(([, text]) => text);
      const flags = said.map(([name, text]) => `--${name === "form" ? "format" : name} ${quoted(text)}`);
      command.textContent = ["kvreport claim", ...flags].join(" ");
    }

    function shown(found) {
      const factor = found.factor === null ? [] : [["Stated ÷ recomputed", found.factor.toPrecision(3)]];
      const why = found.cause || found.assumption;
      const rows = [
        ["Stated", `${found.stated_value} ${found.stated_unit}`],
        ["Recomputed", `${Number(found.computed_value.toPrecision(6))} ${found.computed_unit}`],
        ...factor,
        ...(why ? [[found.cause ? "Cause" : "Unstated assumption", why]] : []),
      ];
      box.replaceChildren(
        make("p", { class: "kv-big" }, found.verdict[0].toUpperCase() + found.verdict.slice(1)),
        definitions("kv-readings", rows),
        make("p", {}, found.explanation),
      );
    }

    async function judge(event) {
      event.preventDefault();
      if (!form.dataset.kvRuns) return;
      const mine = turn, button = $("button", form);
      button.disabled = true;
      try {
        const { call } = await library.start();
        library.say("Calculating …");
        const found = await call({ claim: given() });
        if (mine === turn) shown(found);
      } catch (error) {
        if (mine === turn) box.replaceChildren(kvreport.fault(error));
      } finally {
        button.disabled = false;
        library.say("");
      }
    }

    const asked = new URLSearchParams(location.search); // a link says the figure
    for (const field of asked.has("value") ? fields : []) kvreport.put(field, asked.get(field.name) || "");
    for (const field of $$("input", form)) {
      // What is typed replaces the example, as it does where the key Tab leads to the field.
      field.addEventListener("click", () => field.value === field.defaultValue && field.select());
    }
    form.addEventListener("input", write);
    form.addEventListener("submit", judge);
    write();
    return { release };
  }

  Object.assign(kvreport, { claims });
})();
