"use strict";
for (const trace of document.querySelectorAll(".trace")) {
  const states = [...trace.querySelectorAll(".state")];
  const slider = trace.querySelector("input[type=range]");
  const output = trace.querySelector("output");
  const only = trace.querySelector("input[type=checkbox]");
  const show = (number) => {
    const chosen = Math.min(Math.max(number, 0), states.length - 1);
    states.forEach((state, place) => { state.hidden = place !== chosen; });
    slider.value = String(chosen);
    slider.setAttribute("aria-valuetext", states[chosen].dataset.title);
    output.textContent = states[chosen].dataset.title;
  };
  const mark = () => trace.classList.toggle("only-changed", only.checked);
  slider.addEventListener("input", () => show(Number(slider.value)));
  for (const button of trace.querySelectorAll("button[data-go]")) {
    button.addEventListener("click", () => show(Number(slider.value) + Number(button.dataset.go)));
  }
  only.addEventListener("change", mark);
  trace.querySelector(".controls").hidden = false;
  show(Number(slider.value));
  mark();
}
