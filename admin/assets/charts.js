// Shows the values of a chart at the time below the pointer, or at that of the chart's slider, which the arrow keys move.
// They come from the table below the chart, which is there without this script, too.
"use strict";
(() => {
	document.documentElement.classList.add("scripted");
	let hovered = null;

	function show(chart) {
		const slider = chart.querySelector(".scrub"), rows = chart.querySelectorAll("tbody tr");
		const row = rows[rows.length - 1 - slider.value];
		if (!row) return;
		const time = row.querySelector("time"), cells = [...row.querySelectorAll("td.number")].map((cell) => cell.textContent);
		const names = [...chart.querySelectorAll("thead th.number")].map((name) => name.textContent);
		chart.querySelectorAll(".legend b").forEach((value, i) => { value.textContent = cells[i]; });
		chart.querySelector(".legend time").textContent = time.textContent;
		chart.querySelector(".legend time").dateTime = time.dateTime;
		slider.setAttribute("aria-valuetext", `${time.textContent}: ` + names.map((name, i) => `${name} ${cells[i]}`).join(", ") + " per second");
		const plot = chart.querySelector(".plot"), cursor = plot.querySelector(".cursor");
		const x = plot.viewBox.baseVal.width - rows.length + Number(slider.value) + 0.5;
		cursor.setAttribute("x1", x);
		cursor.setAttribute("x2", x);
	}

	function move(chart, slot) {
		const slider = chart.querySelector(".scrub");
		slider.value = slot; // which keeps it from 0 to the last step
		show(chart);
	}

	document.addEventListener("pointermove", (event) => {
		const drawn = event.target.closest?.(".chart .times"), chart = drawn?.closest(".chart:has(.scrub)");
		if (hovered && hovered !== chart) move(hovered, Infinity);
		hovered = chart;
		if (!chart) return;
		const box = drawn.getBoundingClientRect(), slots = chart.querySelector(".plot").viewBox.baseVal.width;
		const slot = Math.floor((event.clientX - box.left) / box.width * slots);
		move(chart, slot - (slots - chart.querySelectorAll("tbody tr").length));
	});
	document.addEventListener("input", (event) => {
		if (event.target.classList.contains("scrub")) show(event.target.closest(".chart"));
	});
	const showAll = () => document.querySelectorAll(".chart:has(.scrub)").forEach(show);
	document.addEventListener("updated", showAll); // by page.js
	showAll();
})();
