// Keeps the page up to date while somebody looks at it. Without this script the page is complete, and as old as its
// last reload. Every part with data-live is fetched again as the server renders it, and its texts and attributes are
// changed in place: the focus stays where it is, and nothing is announced.
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
		for (const { name, value } of [...as.attributes]) {
			if (node.getAttribute(name) !== value) node.setAttribute(name, value);
		}
		for (const { name } of [...node.attributes]) {
			if (!as.hasAttribute(name) && name !== "open") node.removeAttribute(name); // a user has opened it
		}
		const wanted = [...as.childNodes], is = [...node.childNodes];
		wanted.forEach((child, i) => { if (is[i]) update(is[i], child); else node.append(document.adoptNode(child)); });
		for (const child of is.slice(wanted.length)) {
			if (!child.contains(document.activeElement)) child.remove();
		}
	}

	async function poll() {
		clearTimeout(timer);
		if (document.hidden) return; // visibilitychange goes on
		try {
			const page = await fetchPage();
			for (const part of document.querySelectorAll("[data-live]")) {
				const as = page.getElementById(part.id);
				if (as) update(part, as);
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
