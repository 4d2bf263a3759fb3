// Reads [{headers, at}] from standard input, and writes what ratelimit-header-parser makes of each at that time
// of its, in milliseconds.
import { readFileSync } from 'node:fs'
import { parseRateLimit } from 'ratelimit-header-parser'

const RealDate = Date

const at = (time, f) => {
	globalThis.Date = class extends RealDate {
		constructor(...args) {
			super(...(args.length > 0 ? args : [time]))
		}
	}
	return f()
}

const parse = ({ headers, at: time }) => {
	const found = at(time, () => parseRateLimit(headers))
	return found && { limit: found.limit, remaining: found.remaining, reset: found.reset?.getTime() }
}

const responses = JSON.parse(readFileSync(0, 'utf8'))
process.stdout.write(JSON.stringify(responses.map((response) => parse(response) ?? null)))
