"use strict";
const specs = JSON.parse(document.getElementById("specs").textContent);
const options = { mode: "vega", renderer: "svg", actions: false, tooltip: { theme: "page" } };
for (const place of document.querySelectorAll(".plot")) {
  vegaEmbed(place, specs[place.dataset.spec], options).then((drawn) => {
    place.view = drawn.view;
    place.dataset.drawn = "";
  });
}
// A printed page shows the tables, too.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:has(table)")) details.open = true;
});
