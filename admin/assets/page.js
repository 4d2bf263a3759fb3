// Keeps the page up to date while somebody looks at it. Without this script the page is complete, and as old as its
// last reload. Every part with data-live is fetched again as the server renders it, and its texts and attributes are
// changed in place: the focus stays where it is, and nothing is announced. Between two answers bars refill.
"use strict";
(() => {
	const every = 2000, giveUp = 5;
	const live = document.getElementById("live");
	if (!live) return;
	const buckets = document.getElementById("buckets");
	let failed = 0, timer = 0, received = performance.now();

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
			if (!as.hasAttribute(name)) node.removeAttribute(name);
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
			received = performance.now();
			say("Live.");
			refill();
		} catch {
			if (++failed >= giveUp) {
				say("Live updates have stopped: the service does not answer. Reload the page.");
				document.documentElement.classList.add("stopped");
				return;
			}
		}
		timer = setTimeout(poll, every);
	}

	// span writes seconds as the server does.
	function span(s) {
		const two = (most, unit, rest, of) => rest ? `${most} ${unit} ${rest} ${of}` : `${most} ${unit}`;
		const seconds = Math.ceil(s), minutes = Math.ceil(s / 60), hours = Math.ceil(s / 3600);
		if (s <= 9.9) return Math.ceil(s * 10) / 10 + " s";
		if (s <= 119) return seconds + " s";
		if (s <= 7199) return two(Math.floor(seconds / 60), "min", seconds % 60, "s");
		if (s <= 172740) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
		return two(Math.floor(hours / 24), "d", hours % 24, "h");
	}

	function set(bucket, selector, text) {
		const node = bucket.querySelector(selector);
		if (node && node.textContent !== text) node.textContent = text;
	}

	// refill shows what the buckets hold now: what the server said, and what was added since.
	function refill() {
		const passed = (performance.now() - received) / 1000;
		for (const bucket of document.querySelectorAll(".bucket")) {
			const of = (name) => Number(bucket.dataset[name]);
			const state = bucket.dataset.state, burst = of("burst"), meter = bucket.querySelector(".meter");
			if (state === "blocked") {
				const left = of("next") - passed;
				set(bucket, ".next", left > 0 ? `No request is allowed for ${span(left)}.` : "The block has ended.");
				continue;
			}
			if (!meter || state === "full" || !burst || !of("rate")) continue; // a quota has no rate: it stays as the server wrote it
			const tokens = Math.min(burst, of("tokens") + of("rate") * passed), next = of("next") - passed, full = of("full") - passed;
			const text = (Math.floor(tokens * 10) / 10).toFixed(1).replace(/\.0$/, "").replace("-", "−") + " of " + burst.toLocaleString("en-US") + " tokens";
			meter.querySelector(".fill").setAttribute("width", (100 * Math.max(0, tokens) / burst).toFixed(2));
			meter.setAttribute("aria-valuenow", Math.max(0, tokens).toFixed(1));
			meter.setAttribute("aria-valuetext", text);
			set(bucket, ".level", text);
			set(bucket, ".next", full <= 0 ? "Refilled." : (next > 0 ? `The next request is allowed in ${span(next)}.` : "The next request is allowed now.") + ` Full in ${span(full)}.`);
		}
	}

	if (buckets) {
		const calm = matchMedia("(prefers-reduced-motion: reduce)");
		let last = 0;
		const frame = (now) => {
			if (now - last >= (calm.matches ? 1000 : 50)) { last = now; refill(); }
			requestAnimationFrame(frame);
		};
		requestAnimationFrame(frame);
	}
	document.addEventListener("visibilitychange", () => { if (!document.hidden && failed < giveUp) poll(); });
	say("Live.");
	timer = setTimeout(poll, every);
})();
