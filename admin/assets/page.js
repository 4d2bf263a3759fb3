// Keeps the page up to date while somebody looks at it. Without this script the page is complete, and as old as its
// last reload. Every part with data-live is fetched again as the server renders it, and its texts and attributes are
// changed in place: the focus stays where it is, and nothing is announced.
// Replicas behind a load balancer take turns to answer, so an answer may be older than the one before: it is left out.
"use strict";
(() => {
	const every = 2000, giveUp = 5;
	const live = document.getElementById("live");
	if (!live) return;
	const buckets = document.getElementById("buckets");
	let failed = 0, timer = 0;

	const say = (text) => { if (live.textContent !== text) live.textContent = text; };

	// fetchPage returns the page as it is now. A key goes into the body of a request: addresses land in logs.
	async function fetchPage() {
		let address = location.href, options = {}; // unlike document.baseURI, location.href has no password, which fetch refuses
		if (buckets) {
			address = new URL(buckets.dataset.root + "key", address);
			const form = new URLSearchParams({ [buckets.dataset.field]: buckets.dataset.value });
			if (buckets.dataset.policy) form.set("policy", buckets.dataset.policy);
			options = { method: "POST", body: form };
		}
		const answer = await fetch(address, {
			...options, cache: "no-store", redirect: "error", headers: { Accept: "text/html" }, signal: AbortSignal.timeout(every * 3),
		});
		if (!answer.ok) throw new Error(answer.statusText);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		if (!page.getElementById(live.id)) throw new Error("another page"); // such as a login
		return page;
	}

	// update makes a node like another one, in place where they have the same form.
	function update(node, as) {
		if (node.nodeType !== as.nodeType || node.nodeName !== as.nodeName) {
			if (!node.contains(document.activeElement)) node.replaceWith(document.adoptNode(as));
			return;
		}
		if (node.nodeType !== Node.ELEMENT_NODE) {
			if (node.nodeValue !== as.nodeValue) node.nodeValue = as.nodeValue;
			return;
		}
		// What somebody has opened or closed stays so, unless the server begins or ends to open it.
		const same = node.dataset?.trouble === as.dataset?.trouble, keeps = (name) => name === "open" && same;
		for (const { name, value } of [...as.attributes]) {
			if (node.getAttribute(name) !== value && !keeps(name)) node.setAttribute(name, value);
		}
		for (const { name } of [...node.attributes]) {
			if (!as.hasAttribute(name) && !keeps(name)) node.removeAttribute(name);
		}
		if (as.querySelector(":scope > [data-row]") && node.querySelector(":scope > [data-row]")) return updateRows(node, as);
		const wanted = [...as.childNodes], is = [...node.childNodes];
		wanted.forEach((child, i) => { if (is[i]) update(is[i], child); else node.append(document.adoptNode(child)); });
		for (const child of is.slice(wanted.length)) {
			if (!child.contains(document.activeElement)) child.remove();
		}
	}

	// updateRows makes the children of a node like those of another one. A row stays that of its key: a button that has
	// the focus never becomes the button of another key. That row stays where it is, and the others move around it.
	function updateRows(node, as) {
		const rows = new Map([...node.children].map((row) => [row.dataset.row, row]));
		const wanted = [...as.children].map((row) => {
			const is = rows.get(row.dataset.row);
			if (!is) return document.adoptNode(row);
			rows.delete(row.dataset.row);
			update(is, row);
			return is;
		});
		for (const row of [...node.children]) {
			if (!wanted.includes(row) && !row.contains(document.activeElement)) row.remove();
		}
		if (wanted.every((row, i) => row === node.children[i])) return;
		const fixed = wanted.findIndex((row) => row.contains(document.activeElement));
		wanted.forEach((row, i) => { if (i < fixed) wanted[fixed].before(row); else if (i > fixed) node.append(row); });
	}

	const asOf = (page) => Date.parse(page.querySelector("#as-of time").dateTime);

	async function poll() {
		clearTimeout(timer);
		if (document.hidden) return; // visibilitychange goes on
		try {
			const page = await fetchPage();
			const older = asOf(document) - asOf(page);
			if (!(older > 0 && older < 10 * every)) { // otherwise a clock was set back
				for (const part of document.querySelectorAll("[data-live]")) {
					const as = page.getElementById(part.id);
					if (as) update(part, as);
				}
			}
			failed = 0;
			say("Live.");
			document.dispatchEvent(new Event("updated")); // for charts.js
		} catch {
			if (++failed >= giveUp) {
				say("Live updates have stopped: the service does not answer. Reload the page.");
				document.documentElement.classList.add("stopped");
				return;
			}
		}
		timer = setTimeout(poll, every);
	}

	document.addEventListener("visibilitychange", () => { if (!document.hidden && failed < giveUp) poll(); });
	say("Live.");
	timer = setTimeout(poll, every);
})();
