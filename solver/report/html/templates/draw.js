"use strict";
const specs = JSON.parse(document.getElementById("specs").textContent);
const options = { mode: "vega", renderer: "svg", actions: false, tooltip: { theme: "page" } };
const places = [...document.querySelectorAll(".plot")];
const drawn = places.map((place) =>
  vegaEmbed(place, specs[place.dataset.spec], options).then(({ view }) => {
    place.view = view;
  }),
);
Promise.all(drawn).then(() => performance.mark("figures-drawn"));
// A printed page shows the tables, too.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:has(table)")) details.open = true;
});
