package clientip_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// A clientIPCase is a request as it arrives: its TCP peer, and the lines of X-Forwarded-For, of Forwarded
// and of an edge's header. A header of "" is absent, and one of emptyLine is there and empty.
//
// want is whom the trust models take for the client, each by the letter of parties, in the order of
// trustModels: the peer, then by X-Forwarded-For trusted prefixes and a count of 1 and of 2 proxies, then
// the same by Forwarded, then the edge's header from anybody and from trusted prefixes. Then those that trust Unix
// sockets: by X-Forwarded-For alone and beside trusted prefixes, by Forwarded, and by the edge's header.
type clientIPCase struct {
	name, peer, xff, forwarded, edge, want string
}

const emptyLine = " "

// parties are keys. The client is what an honest model should find, and the victim what clients forge.
var parties = map[rune]string{
	'c': "ip:192.0.2.1",         // the client
	'6': "ip:2001:db8:2::/64",   // the client, with IPv6
	'7': "ip:2001:db8:2:1::/64", // its neighbour
	'v': "ip:203.0.113.7",       // the victim
	's': "ip:198.51.100.1",      // a stranger that comes directly
	'p': "ip:10.0.0.1",          // our proxy, the peer
	'q': "ip:10.0.0.2",          // our proxy before that
	't': "ip:10.0.0.3",          // one before that
	'o': "ip:2001:db8:1::/64",   // our proxies with IPv6
	'L': "ip:fe80::/64",         // a neighbour on the link
	'n': "ip:64:ff9b::/64",      // an IPv4 client behind NAT64
	'0': "ip:::/64",             // the loopback address and its kin
	'-': "",                     // nobody: no key
	'!': badRequest,             // something that is no address
}

var clientIPCases = []clientIPCase{
	// What honest proxies send, and what happens where a model does not fit them.
	{"A client without a proxy", stranger, "", "", "", "s s-- s-- -s ssss"},
	{"A proxy of its own accord", proxy, "", "", "", "p p-- p-- -- pppp"},
	{"A client behind one proxy", proxy, "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "p cc- cc- cc pcpp"},
	{"A client behind two proxies", proxy, "192.0.2.1, 10.0.0.2", "for=192.0.2.1, for=10.0.0.2", "192.0.2.1", "p cqc cqc cc pcpp"},
	{"A client behind three proxies", proxy, "192.0.2.1, 10.0.0.3, 10.0.0.2", "for=192.0.2.1, for=10.0.0.3, for=10.0.0.2", "192.0.2.1", "p cqt cqt cc pcpp"},
	{"A client among the proxies", proxy, "10.0.0.2", "for=10.0.0.2", "10.0.0.2", "p qq- qq- qq pqpp"},
	{"A client among the proxies, behind another", proxy, "10.0.0.3, 10.0.0.2", "for=10.0.0.3, for=10.0.0.2", "10.0.0.3", "p tqt tqt tt ptpp"},
	{"A client behind a proxy with IPv6", "[2001:db8:1::1]:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "o cc- cc- cc ocoo"},
	{"A client behind two, the far one with IPv6", proxy, "192.0.2.1, 2001:db8:1::2", `for=192.0.2.1, for="[2001:db8:1::2]"`, "192.0.2.1", "p coc coc cc pcpp"},
	{"A line for each proxy", proxy, "192.0.2.1\n10.0.0.2", "for=192.0.2.1\nfor=10.0.0.2", "192.0.2.1\n10.0.0.2", "p cqc cqc qq pcpp"},

	// What clients forge before their proxy adds its entry.
	{"A forged entry before", proxy, "203.0.113.7, 192.0.2.1", "for=203.0.113.7, for=192.0.2.1", "192.0.2.1", "p ccv ccv cc pcpp"},
	{"A forged line before", proxy, "203.0.113.7\n192.0.2.1", "for=203.0.113.7\nfor=192.0.2.1", "203.0.113.7\n192.0.2.1", "p ccv ccv cc pcpp"},
	{"A forged entry before two proxies", proxy, "203.0.113.7, 192.0.2.1, 10.0.0.2", "for=203.0.113.7, for=192.0.2.1, for=10.0.0.2", "192.0.2.1", "p cqc cqc cc pcpp"},
	{"A forged proxy before", proxy, "203.0.113.7, 10.0.0.3, 192.0.2.1", "for=203.0.113.7, for=10.0.0.3, for=192.0.2.1", "10.0.0.3\n192.0.2.1", "p cct cct cc pcpp"},
	{"A forged mapped proxy before", proxy, "203.0.113.7, ::ffff:10.0.0.3, 192.0.2.1", `for=203.0.113.7, for="[::ffff:10.0.0.3]", for=192.0.2.1`, "192.0.2.1", "p cct cct cc pcpp"},
	{"1000 forged lines before", proxy, strings.Repeat("203.0.113.7\n", 1000) + "192.0.2.1", strings.Repeat("for=203.0.113.7\n", 1000) + "for=192.0.2.1", strings.Repeat("203.0.113.7\n", 1000) + "192.0.2.1", "p ccv ccv cc pcpp"},
	{"1000 empty lines before", proxy, strings.Repeat("\n", 1000) + "192.0.2.1", strings.Repeat("\n", 1000) + "for=192.0.2.1", strings.Repeat("\n", 1000) + "192.0.2.1", "p cc! cc! cc pcpp"},
	{"64 KiB of forged entries before", proxy, strings.Repeat("203.0.113.7,", 6000) + "192.0.2.1", strings.Repeat("for=203.0.113.7,", 6000) + "for=192.0.2.1", strings.Repeat("203.0.113.7,", 6000) + "192.0.2.1", "p ccv !!! !! pcpp"},
	{"64 KiB of garbage before", proxy, strings.Repeat("x", 64<<10) + ", 192.0.2.1", strings.Repeat("x", 64<<10) + ", for=192.0.2.1", strings.Repeat("x", 64<<10) + ", 192.0.2.1", "p cc! !!! !! pcpp"},
	{"64 KiB of garbage on a line before", proxy, strings.Repeat("x", 64<<10) + "\n192.0.2.1", strings.Repeat("x", 64<<10) + "\nfor=192.0.2.1", strings.Repeat("x", 64<<10) + "\n192.0.2.1", "p cc! cc! cc pcpp"},
	{"Garbage before", proxy, "garbage, 192.0.2.1", "for=garbage, for=192.0.2.1", "garbage\n192.0.2.1", "p cc! cc! cc pcpp"},
	{"Garbage before two proxies", proxy, "garbage, 192.0.2.1, 10.0.0.2", "for=garbage, for=192.0.2.1, for=10.0.0.2", "192.0.2.1", "p cqc cqc cc pcpp"},

	// Clients that come around the proxies. A count, and an edge from anybody, must not be used there.
	{"A stranger that forges", stranger, "203.0.113.7", "for=203.0.113.7", "203.0.113.7", "s sv- sv- vs ssss"},
	{"A stranger that forges a proxy, too", stranger, "203.0.113.7, 10.0.0.2", "for=203.0.113.7, for=10.0.0.2", "203.0.113.7", "s sqv sqv vs ssss"},
	{"A stranger that sends garbage", stranger, "garbage", "garbage", "garbage", "s s!! s!! !s ssss"},
	{"A stranger with IPv6 that forges", "[2001:db8:2::1]:1234", "203.0.113.7", "for=203.0.113.7", "203.0.113.7", "6 6v- 6v- v6 6666"},

	// Entries that decide, and are no address: nothing beyond them is believed.
	{"Garbage", proxy, "garbage", "for=garbage", "garbage", "p !!! !!! !! p!pp"},
	{"Garbage behind the client", proxy, "192.0.2.1, garbage", "for=192.0.2.1, for=garbage", "192.0.2.1\ngarbage", "p !!! !!! !! p!pp"},
	{"Garbage on a line behind the client", proxy, "192.0.2.1\ngarbage", "for=192.0.2.1\ngarbage", "192.0.2.1\ngarbage", "p !!! !!! !! p!pp"},
	{"Garbage between client and proxy", proxy, "192.0.2.1, garbage, 10.0.0.2", "for=192.0.2.1, for=garbage, for=10.0.0.2", "garbage", "p !q! !q! !! p!pp"},
	{"An unknown client", proxy, "unknown", "for=unknown", "unknown", "p !!! !!! !! p!pp"},
	{"An UNKNOWN client", proxy, "UNKNOWN", "for=UNKNOWN", "UNKNOWN", "p !!! !!! !! p!pp"},
	{"An unknown client behind two proxies", proxy, "203.0.113.7, unknown, 10.0.0.2", "for=203.0.113.7, for=unknown, for=10.0.0.2", "unknown", "p !q! !q! !! p!pp"},
	{"An obfuscated client", proxy, "_gazonk", "for=_gazonk", "_gazonk", "p !!! !!! !! p!pp"},
	{"An obfuscated client in quotes", proxy, `"_gazonk"`, `for="_gazonk"`, `"_gazonk"`, "p !!! !!! !! p!pp"},
	{"An obfuscated client behind two proxies", proxy, "203.0.113.7, _x, 10.0.0.2", "for=203.0.113.7, for=_x, for=10.0.0.2", "_x", "p !q! !q! !! p!pp"},
	{"The unspecified IPv4 address", proxy, "0.0.0.0", "for=0.0.0.0", "0.0.0.0", "p !!! !!! !! p!pp"},
	{"The unspecified IPv6 address", proxy, "::", `for="[::]"`, "::", "p !!! !!! !! p!pp"},
	{"The mapped unspecified address", proxy, "::ffff:0.0.0.0", `for="[::ffff:0.0.0.0]"`, "::ffff:0.0.0.0", "p !!! !!! !! p!pp"},
	{"The unspecified address behind the client", proxy, "192.0.2.1, 0.0.0.0", "for=192.0.2.1, for=0.0.0.0", "0.0.0.0", "p !!! !!! !! p!pp"},
	{"A leading zero", proxy, "192.0.2.01", "for=192.0.2.01", "192.0.2.01", "p !!! !!! !! p!pp"},
	{"Octal numbers", proxy, "0300.0.02.01", "for=0300.0.02.01", "0300.0.02.01", "p !!! !!! !! p!pp"},
	{"Hexadecimal IPv4", proxy, "0xc0.0.2.1", "for=0xc0.0.2.1", "0xc0.0.2.1", "p !!! !!! !! p!pp"},
	{"IPv4 of two numbers", proxy, "192.513", "for=192.513", "192.513", "p !!! !!! !! p!pp"},
	{"IPv4 of one number", proxy, "3221225985", "for=3221225985", "3221225985", "p !!! !!! !! p!pp"},
	{"IPv4 of five numbers", proxy, "192.0.2.1.1", "for=192.0.2.1.1", "192.0.2.1.1", "p !!! !!! !! p!pp"},
	{"A number above 255", proxy, "192.0.2.256", "for=192.0.2.256", "192.0.2.256", "p !!! !!! !! p!pp"},
	{"A trailing dot", proxy, "192.0.2.1.", "for=192.0.2.1.", "192.0.2.1.", "p !!! !!! !! p!pp"},
	{"A prefix", proxy, "192.0.2.1/32", `for="192.0.2.1/32"`, "192.0.2.1/32", "p !!! !!! !! p!pp"},
	{"A host name", proxy, "client.example", "for=client.example", "client.example", "p !!! !!! !! p!pp"},
	{"A host name of numbers", proxy, "192.0.2.1.example", "for=192.0.2.1.example", "192.0.2.1.example", "p !!! !!! !! p!pp"},
	{"A URL", proxy, "http://192.0.2.1", `for="http://192.0.2.1"`, "http://192.0.2.1", "p !!! !!! !! p!pp"},
	{"Digits of another script", proxy, "١٩٢.0.2.1", `for="١٩٢.0.2.1"`, "١٩٢.0.2.1", "p !!! !!! !! p!pp"},

	// Ports and brackets.
	{"A port", proxy, "192.0.2.1:4711", `for="192.0.2.1:4711"`, "192.0.2.1:4711", "p cc- cc- cc pcpp"},
	{"A port behind two proxies", proxy, "192.0.2.1:4711, 10.0.0.2:80", `for="192.0.2.1:4711", for="10.0.0.2:80"`, "192.0.2.1:4711", "p cqc cqc cc pcpp"},
	{"Port 0", proxy, "192.0.2.1:0", `for="192.0.2.1:0"`, "192.0.2.1:0", "p cc- cc- cc pcpp"},
	{"Port 65535", proxy, "192.0.2.1:65535", `for="192.0.2.1:65535"`, "192.0.2.1:65535", "p cc- cc- cc pcpp"},
	{"Port 65536", proxy, "192.0.2.1:65536", `for="192.0.2.1:65536"`, "192.0.2.1:65536", "p !!! !!! !! p!pp"},
	{"A port of six digits", proxy, "192.0.2.1:000080", `for="192.0.2.1:000080"`, "192.0.2.1:000080", "p !!! !!! !! p!pp"},
	{"An empty port", proxy, "192.0.2.1:", `for="192.0.2.1:"`, "192.0.2.1:", "p !!! !!! !! p!pp"},
	{"A negative port", proxy, "192.0.2.1:-80", `for="192.0.2.1:-80"`, "192.0.2.1:-80", "p !!! !!! !! p!pp"},
	{"A named port", proxy, "192.0.2.1:http", `for="192.0.2.1:http"`, "192.0.2.1:http", "p !!! !!! !! p!pp"},
	{"An obfuscated port", proxy, "192.0.2.1:_gazonk", `for="192.0.2.1:_gazonk"`, "192.0.2.1:_gazonk", "p !!! !!! !! p!pp"},
	{"A port without quotes", proxy, "192.0.2.1:4711", "for=192.0.2.1:4711", "192.0.2.1:4711", "p cc- !!! cc pcpp"},
	{"IPv6", proxy, "2001:db8:2::1", `for="[2001:db8:2::1]"`, "2001:db8:2::1", "p 66- 66- 66 p6pp"},
	{"IPv6 in brackets", proxy, "[2001:db8:2::1]", `for="[2001:db8:2::1]"`, "[2001:db8:2::1]", "p 66- 66- 66 p6pp"},
	{"IPv6 in brackets with a port", proxy, "[2001:db8:2::1]:4711", `for="[2001:db8:2::1]:4711"`, "[2001:db8:2::1]:4711", "p 66- 66- 66 p6pp"},
	{"IPv6 without brackets with what looks like a port", proxy, "2001:db8:2::1:4711", `for="2001:db8:2::1:4711"`, "2001:db8:2::1:4711", "p 66- !!! 66 p6pp"},
	{"IPv6 without brackets", proxy, "2001:db8:2::1", `for="2001:db8:2::1"`, "2001:db8:2::1", "p 66- !!! 66 p6pp"},
	{"IPv6 without quotes", proxy, "[2001:db8:2::1]", "for=[2001:db8:2::1]", "[2001:db8:2::1]", "p 66- !!! 66 p6pp"},
	{"IPv6 in quotes", proxy, `"[2001:db8:2::1]"`, `for="[2001:db8:2::1]"`, `"2001:db8:2::1"`, "p !!! 66- !! p!pp"},
	{"IPv4 in brackets", proxy, "[192.0.2.1]", `for="[192.0.2.1]"`, "[192.0.2.1]", "p !!! !!! !! p!pp"},
	{"An open bracket", proxy, "[2001:db8:2::1", `for="[2001:db8:2::1"`, "[2001:db8:2::1", "p !!! !!! !! p!pp"},
	{"A bracket that nothing opens", proxy, "2001:db8:2::1]", `for="2001:db8:2::1]"`, "2001:db8:2::1]", "p !!! !!! !! p!pp"},
	{"Text behind the bracket", proxy, "[2001:db8:2::1]x", `for="[2001:db8:2::1]x"`, "[2001:db8:2::1]x", "p !!! !!! !! p!pp"},

	// The many ways to write IPv6 are not many keys.
	{"IPv6 in capitals", proxy, "2001:DB8:2::ABCD", `for="[2001:DB8:2::ABCD]"`, "2001:DB8:2::ABCD", "p 66- 66- 66 p6pp"},
	{"IPv6 in full", proxy, "2001:0db8:0002:0000:0000:0000:0000:0001", `for="[2001:0db8:0002:0000:0000:0000:0000:0001]"`, "2001:0db8:0002:0000:0000:0000:0000:0001", "p 66- 66- 66 p6pp"},
	{"The last address of the /64", proxy, "2001:db8:2:0:ffff:ffff:ffff:ffff", `for="[2001:db8:2:0:ffff:ffff:ffff:ffff]"`, "2001:db8:2:0:ffff:ffff:ffff:ffff", "p 66- 66- 66 p6pp"},
	{"The next /64", proxy, "2001:db8:2:1::", `for="[2001:db8:2:1::]"`, "2001:db8:2:1::", "p 77- 77- 77 p7pp"},
	{"IPv6 of nine groups", proxy, "1:2:3:4:5:6:7:8:9", `for="[1:2:3:4:5:6:7:8:9]"`, "1:2:3:4:5:6:7:8:9", "p !!! !!! !! p!pp"},
	{"A zone", proxy, "fe80::1%eth0", `for="[fe80::1%eth0]"`, "fe80::1%eth0", "p LL- LL- LL pLpp"},
	{"A zone in brackets with a port", proxy, "[fe80::1%eth0]:80", `for="[fe80::1%eth0]:80"`, "[fe80::1%eth0]:80", "p LL- LL- LL pLpp"},
	{"A zone that looks like a victim", proxy, "fe80::1%203.0.113.7", `for="[fe80::1%203.0.113.7]"`, "fe80::1%203.0.113.7", "p LL- LL- LL pLpp"},
	{"A zone with a comma", proxy, "fe80::1%a,b", `for="[fe80::1%a,b]"`, "fe80::1%a,b", "p !!! LL- !! p!pp"},
	{"A zone that opens a list", proxy, "fe80::1%a, 192.0.2.1", `for="[fe80::1%a, for=192.0.2.1"`, "fe80::1%a, 192.0.2.1", "p ccL !!! !! pcpp"},
	{"An empty zone", proxy, "fe80::1%", `for="[fe80::1%]"`, "fe80::1%", "p !!! !!! !! p!pp"},
	{"IPv4 with a zone", proxy, "192.0.2.1%eth0", `for="192.0.2.1%eth0"`, "192.0.2.1%eth0", "p !!! !!! !! p!pp"},
	{"A zone of a proxy", proxy, "192.0.2.1, 2001:db8:1::2%eth0", `for=192.0.2.1, for="[2001:db8:1::2%eth0]"`, "192.0.2.1", "p coc coc cc pcpp"},
	{"Mapped IPv4", proxy, "::ffff:192.0.2.1", `for="[::ffff:192.0.2.1]"`, "::ffff:192.0.2.1", "p cc- cc- cc pcpp"},
	{"Mapped IPv4 in hexadecimal", proxy, "::FFFF:C000:0201", `for="[::FFFF:C000:0201]"`, "::FFFF:C000:0201", "p cc- cc- cc pcpp"},
	{"Mapped IPv4 with a zone", proxy, "::ffff:192.0.2.1%eth0", `for="[::ffff:192.0.2.1%eth0]"`, "::ffff:192.0.2.1%eth0", "p cc- cc- cc pcpp"},
	{"Mapped IPv4 with a leading zero", proxy, "::ffff:192.0.2.01", `for="[::ffff:192.0.2.01]"`, "::ffff:192.0.2.01", "p !!! !!! !! p!pp"},
	{"A mapped proxy", proxy, "192.0.2.1, ::ffff:10.0.0.2", `for=192.0.2.1, for="[::ffff:10.0.0.2]"`, "192.0.2.1", "p cqc cqc cc pcpp"},
	{"Embedded IPv4 that is not mapped", proxy, "::192.0.2.1", `for="[::192.0.2.1]"`, "::192.0.2.1", "p 00- 00- 00 p0pp"},
	{"IPv4 behind NAT64", proxy, "64:ff9b::192.0.2.1", `for="[64:ff9b::192.0.2.1]"`, "64:ff9b::192.0.2.1", "p nn- nn- nn pnpp"},

	// Lists with too little, and with too much.
	{"Empty headers", proxy, emptyLine, emptyLine, emptyLine, "p p-- p-- !! pppp"},
	{"Headers of blanks", proxy, " \t \n\t", " \t \n\t", " \t \n\t", "p p-- p-- !! pppp"},
	{"Headers of commas", proxy, ",, ,", ",, ,", ",, ,", "p p-- p-- !! pppp"},
	{"Empty elements around", proxy, ",192.0.2.1,, \t,10.0.0.2,", ",for=192.0.2.1,, \t,for=10.0.0.2,", ",192.0.2.1,", "p cqc cqc !! pcpp"},
	{"An empty line behind", proxy, "192.0.2.1\n", "for=192.0.2.1\n", "192.0.2.1\n", "p cc- cc- !! pcpp"},
	{"63 elements of nothing behind", proxy, "192.0.2.1" + strings.Repeat(",", 63), "for=192.0.2.1" + strings.Repeat(",", 63), "", "p cc- cc- -- pcpp"},
	{"64 elements of nothing behind", proxy, "192.0.2.1" + strings.Repeat(",", 64), "for=192.0.2.1" + strings.Repeat(",", 64), "", "p !!! !!! -- p!pp"},
	{"1000 commas", proxy, strings.Repeat(",", 1000), strings.Repeat(",", 1000), strings.Repeat(",", 1000), "p !!! !!! !! p!pp"},
	{"63 proxies behind the client", proxy, "192.0.2.1" + strings.Repeat(",10.0.0.2", 63), "for=192.0.2.1" + strings.Repeat(",for=10.0.0.2", 63), "", "p cqq cqq -- pcpp"},
	{"64 proxies behind the client", proxy, "192.0.2.1" + strings.Repeat(",10.0.0.2", 64), "for=192.0.2.1" + strings.Repeat(",for=10.0.0.2", 64), "", "p !qq !qq -- p!pp"},
	{"64 proxies and no client", proxy, "10.0.0.2" + strings.Repeat(",10.0.0.2", 63), "for=10.0.0.2" + strings.Repeat(",for=10.0.0.2", 63), "", "p qqq qqq -- pqpp"},
	{"1000 lines of a proxy", proxy, strings.Repeat("10.0.0.2\n", 999) + "10.0.0.2", strings.Repeat("for=10.0.0.2\n", 999) + "for=10.0.0.2", strings.Repeat("10.0.0.2\n", 999) + "10.0.0.2", "p !qq !qq qq p!pp"},
	{"64 KiB of garbage", proxy, strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10), "p !!! !!! !! p!pp"},
	{"64 KiB of blanks before the client", proxy, strings.Repeat(" ", 64<<10) + "192.0.2.1", strings.Repeat(" ", 64<<10) + "for=192.0.2.1", strings.Repeat(" ", 64<<10) + "192.0.2.1", "p !!! !!! !! p!pp"},
	{"An entry of 256 bytes", proxy, strings.Repeat(" ", 247) + "192.0.2.1", strings.Repeat(" ", 247) + "for=192.0.2.1", strings.Repeat(" ", 247) + "192.0.2.1", "p cc- cc- cc pcpp"},
	{"An entry of 257 bytes", proxy, strings.Repeat(" ", 248) + "192.0.2.1", strings.Repeat(" ", 248) + "for=192.0.2.1", strings.Repeat(" ", 248) + "192.0.2.1", "p !!! cc- !! p!pp"},

	// Blanks and bytes that have no business there.
	{"Blanks around", proxy, " \t192.0.2.1\t , \t10.0.0.2 ", " \tfor=192.0.2.1\t , \tfor=10.0.0.2 ", " \t192.0.2.1\t ", "p cqc cqc cc pcpp"},
	{"No blanks", proxy, "192.0.2.1,10.0.0.2", "for=192.0.2.1,for=10.0.0.2", "192.0.2.1", "p cqc cqc cc pcpp"},
	{"A blank instead of a comma", proxy, "192.0.2.1 10.0.0.2", "for=192.0.2.1 for=10.0.0.2", "192.0.2.1 10.0.0.2", "p !!! !!! !! p!pp"},
	{"A blank within", proxy, "192.0.2. 1", "for=192.0.2. 1", "192.0.2. 1", "p !!! !!! !! p!pp"},
	{"A NUL", proxy, "192.0.2.1\x00", "for=192.0.2.1\x00", "192.0.2.1\x00", "p !!! !!! !! p!pp"},
	{"A carriage return", proxy, "192.0.2.1\r", "for=192.0.2.1\r", "192.0.2.1\r", "p !!! !!! !! p!pp"},
	{"A vertical tab", proxy, "\v192.0.2.1", "\vfor=192.0.2.1", "\v192.0.2.1", "p !!! !!! !! p!pp"},
	{"A DEL", proxy, "192.0.2.1\x7f", "for=192.0.2.1\x7f", "192.0.2.1\x7f", "p !!! !!! !! p!pp"},
	{"A no-break space", proxy, "\u00a0192.0.2.1", "\u00a0for=192.0.2.1", "\u00a0192.0.2.1", "p !!! !!! !! p!pp"},
	{"Bytes that are not UTF-8", proxy, "\xff192.0.2.1", "for=\"\xff192.0.2.1\"", "\xff192.0.2.1", "p !!! !!! !! p!pp"},
	{"Bytes that are not UTF-8 before", proxy, "\xff, 192.0.2.1", "host=\"\xff\";for=192.0.2.1", "\xff\n192.0.2.1", "p cc! cc- cc pcpp"},

	// Quotes, which only Forwarded has.
	{"Quotes", proxy, `"192.0.2.1"`, `for="192.0.2.1"`, `"192.0.2.1"`, "p !!! cc- !! p!pp"},
	{"A list in quotes", proxy, `"203.0.113.7, 192.0.2.1"`, `for="203.0.113.7, 192.0.2.1"`, `"203.0.113.7, 192.0.2.1"`, "p !!! !!! !! p!pp"},
	{"A comma in quotes", proxy, `"203.0.113.7, ", 192.0.2.1`, `host="a, for=203.0.113.7, b";for=192.0.2.1`, "192.0.2.1", "p cc! cc- cc pcpp"},
	{"A semicolon in quotes", proxy, "", `host="a;for=203.0.113.7";for=192.0.2.1`, "", "p p-- cc- -- pppp"},
	{"An escaped quote", proxy, "", `host="\", for=203.0.113.7, \"";for=192.0.2.1`, "", "p p-- cc- -- pppp"},
	{"An escaped backslash", proxy, "", `for=192.0.2.1;host="\\", for=10.0.0.2`, "", "p p-- cqc -- pppp"},
	{"An escaped address", proxy, "", `for="\1\92.0.2\.1"`, "", "p p-- cc- -- pppp"},
	{"Blanks in quotes", proxy, "", `for=" 192.0.2.1"`, "", "p p-- !!! -- pppp"},
	{"Nothing in quotes", proxy, `""`, `for=""`, `""`, "p !!! !!! !! p!pp"},
	{"A quote that a client leaves open", proxy, `"203.0.113.7, 192.0.2.1`, `for="203.0.113.7, for=192.0.2.1`, "", "p cc! !!! -- pcpp"},
	{"A quote left open on a line before", proxy, "\"203.0.113.7\n192.0.2.1", "for=\"203.0.113.7\nfor=192.0.2.1", "\"203.0.113.7\n192.0.2.1", "p cc! cc! cc pcpp"},
	{"A quote that closes on the next line", proxy, "", "for=\"\n\";for=192.0.2.1", "", "p p-- !!! -- pppp"},
	{"A backslash at the end of a line before", proxy, "", "for=\"203.0.113.7\\\nfor=192.0.2.1", "", "p p-- cc! -- pppp"},
	{"A backslash outside quotes", proxy, "", `for=192.0.2.1;host=\", for=10.0.0.2`, "", "p p-- !!! -- pppp"},
	{"Text behind a quote", proxy, "", `for="192.0.2.1"x`, "", "p p-- !!! -- pppp"},

	// The parameters of Forwarded.
	{"All parameters", proxy, "", "for=192.0.2.1;by=203.0.113.7;proto=https;host=api.example", "", "p p-- cc- -- pppp"},
	{"Parameters before", proxy, "", `by="[2001:db8:1::1]";proto=https;for=192.0.2.1`, "", "p p-- cc- -- pppp"},
	{"A parameter of an extension", proxy, "", `for=192.0.2.1;secret="a;b,c"`, "", "p p-- cc- -- pppp"},
	{"A parameter that ends in for", proxy, "", "xfor=203.0.113.7;for=192.0.2.1;for_=203.0.113.7", "", "p p-- cc- -- pppp"},
	{"Names in capitals", proxy, "", "FOR=192.0.2.1;Proto=HTTPS, For=10.0.0.2", "", "p p-- cqc -- pppp"},
	{"By alone", proxy, "", "by=192.0.2.1", "", "p p-- !!! -- pppp"},
	{"An element without for", proxy, "", "for=192.0.2.1, proto=https", "", "p p-- !!! -- pppp"},
	{"An element without for before the proxy", proxy, "", "for=203.0.113.7, proto=https, for=10.0.0.2", "", "p p-- !q! -- pppp"},
	{"Two fors", proxy, "", "for=203.0.113.7;for=192.0.2.1", "", "p p-- !!! -- pppp"},
	{"Two fors of one address", proxy, "", "for=192.0.2.1;FOR=192.0.2.1", "", "p p-- !!! -- pppp"},
	{"A semicolon instead of a comma", proxy, "192.0.2.1; 10.0.0.2", "for=192.0.2.1; for=10.0.0.2", "192.0.2.1; 10.0.0.2", "p !!! !!! !! p!pp"},
	{"Semicolons without parameters", proxy, "", ";for=192.0.2.1;; ;, for=10.0.0.2;", "", "p p-- cqc -- pppp"},
	{"A semicolon alone", proxy, ";", ";", ";", "p !!! !!! !! p!pp"},
	{"Blanks around a semicolon", proxy, "", "for=192.0.2.1 ;\tproto=https", "", "p p-- cc- -- pppp"},
	{"Blanks before the equals sign", proxy, "", "for =192.0.2.1", "", "p p-- !!! -- pppp"},
	{"Blanks behind the equals sign", proxy, "", "for= 192.0.2.1", "", "p p-- !!! -- pppp"},
	{"No value", proxy, "", "for=", "", "p p-- !!! -- pppp"},
	{"No equals sign", proxy, "", "for", "", "p p-- !!! -- pppp"},
	{"No name", proxy, "", "=192.0.2.1", "", "p p-- !!! -- pppp"},
	{"Each header in the form of the other", proxy, "for=192.0.2.1", "192.0.2.1", "for=192.0.2.1", "p !!! !!! !! p!pp"},

	// Peers.
	{"A mapped stranger", "[::ffff:198.51.100.1]:1234", "203.0.113.7", "for=203.0.113.7", "203.0.113.7", "s sv- sv- vs ssss"},
	{"A mapped proxy as the peer", "[::ffff:10.0.0.1]:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "p cc- cc- cc pcpp"},
	{"A peer with a zone", "[fe80::1%eth0]:80", "203.0.113.7", "for=203.0.113.7", "203.0.113.7", "L Lv- Lv- vL LLLL"},
	{"A proxy with a zone as the peer", "[2001:db8:1::1%eth0]:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "o cc- cc- cc ocoo"},
	{"A peer without a port", "10.0.0.1", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "p cc- cc- cc pcpp"},
	{"An IPv6 peer without a port", "2001:db8:1::1", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "o cc- cc- cc ocoo"},
	{"A peer on the loopback interface", "[::1]:80", "203.0.113.7", "for=203.0.113.7", "203.0.113.7", "0 0v- 0v- v0 0000"},
	{"A peer on a Unix socket", "@", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- cccc"},
	{"A peer on a named Unix socket", "/run/app.sock", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- cccc"},
	{"A peer on an abstract Unix socket", "@10.0.0.1:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- cccc"},
	{"A proxy on a Unix socket that sends nothing", "@", "", "", "", "- --- --- -- ----"},
	{"A proxy on a Unix socket that sends empty headers", "@", emptyLine, emptyLine, emptyLine, "- --- --- !- ---!"},
	{"A proxy on a Unix socket that sends garbage", "@", "192.0.2.1, garbage", "for=192.0.2.1, for=garbage", "garbage", "- -!! -!! !- !!!!"},
	{"A forged entry before a proxy on a Unix socket", "@", "203.0.113.7, 192.0.2.1", "for=203.0.113.7, for=192.0.2.1", "192.0.2.1", "- -cv -cv c- cccc"},
	{"A client behind a proxy and one on a Unix socket", "@", "192.0.2.1, 10.0.0.2", "for=192.0.2.1, for=10.0.0.2", "192.0.2.1", "- -qc -qc c- qcqc"},
	{"No peer", "", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- cccc"},
	{"The unspecified address as the peer", "0.0.0.0:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"The unspecified IPv6 address as the peer", "[::]:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"A host name as the peer", "localhost:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"A trailing dot of the peer", "10.0.0.1.:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"A leading zero of the peer", "10.0.0.01:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"A named port of the peer", "10.0.0.1:http", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"IPv4 in brackets as the peer", "[10.0.0.1]:80", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
	{"A list as the peer", "203.0.113.7, 10.0.0.1", "192.0.2.1", "for=192.0.2.1", "192.0.2.1", "- -c- -c- c- ----"},
}

// request returns the request of tt. Headers that no model is told to read name the victim, too.
func (tt clientIPCase) request() *http.Request {
	r := requestFrom(tt.peer)
	for name, lines := range map[string]string{"X-Forwarded-For": tt.xff, "Forwarded": tt.forwarded, edgeHeader: tt.edge} {
		if lines != "" {
			r.Header[name] = strings.Split(lines, "\n")
		}
	}
	for _, name := range []string{"X-Real-Ip", "True-Client-Ip", "X-Client-Ip", "X-Forwarded", "Forwarded-For", "X-Cluster-Client-Ip", "Via"} {
		r.Header.Set(name, "203.0.113.7")
	}
	return r
}

// wants returns the key that each of trustModels has to find.
func (tt clientIPCase) wants(t *testing.T) []string {
	t.Helper()
	var keys []string
	for _, letter := range strings.ReplaceAll(tt.want, " ", "") {
		key, known := parties[letter]
		if !known {
			t.Fatalf("%q is nobody", letter)
		}
		keys = append(keys, key)
	}
	if len(keys) != len(trustModels) {
		t.Fatalf("%q has %d parties; want %d", tt.want, len(keys), len(trustModels))
	}
	return keys
}

func TestWhomEachTrustModelBelieves(t *testing.T) {
	for _, tt := range clientIPCases {
		wants := tt.wants(t)
		for i, m := range trustModels {
			t.Run(tt.name+"/"+m.name, func(t *testing.T) {
				checkKey(t, ratelimit.ClientIP(m.cfg), tt.request(), wants[i])
				if got := m.reference(tt.request()).key(); got != wants[i] {
					t.Errorf("the reference finds %q; want %q", got, wants[i])
				}
			})
		}
	}
}

// FuzzClientIP takes the lines of each header as lines, and an empty text as no header.
func FuzzClientIP(f *testing.F) {
	var finders []ratelimit.KeyFunc
	for _, m := range trustModels {
		finders = append(finders, ratelimit.ClientIP(m.cfg))
	}
	f.Fuzz(func(t *testing.T, peer, xff, forwarded, edge string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
		for name, lines := range map[string]string{"X-Forwarded-For": xff, "Forwarded": forwarded, edgeHeader: edge} {
			if lines != "" {
				r.Header[name] = strings.Split(lines, "\n")
			}
		}
		for i, m := range trustModels {
			want := m.reference(r).key()
			got, err := finders[i](r)
			switch {
			case err == nil && got == "", err != nil && got != "":
				t.Errorf("%s: got %q, %v; want one of them", m.name, got, err)
			case errors.Is(err, ratelimit.ErrBadRequest) && !errors.Is(err, ratelimit.ErrNoKey):
				got = badRequest
			}
			if got != want || err != nil && got == "" && !errors.Is(err, ratelimit.ErrNoKey) {
				t.Errorf("%s: got %q, %v; want %q", m.name, got, err, want)
			}
		}
	})
}
