package curl

import "strings"

// letters are the flags of one letter that mean something here. The other ones are only skipped.
var letters = map[byte]string{
	'X': "request", 'H': "header", 'A': "user-agent", 'b': "cookie", 'u': "user", 'I': "head", 'd': "data", 'F': "form", 'T': "upload-file", 'G': "get", ':': "next",
}

// Flags of one letter, with a value and without.
const (
	valuedLetters = "AbcCdDeEFhHKmoPQrtTuUwxXyYz"
	aloneLetters  = "#0123456:aBfgGiIjJklLMnNOpqRsSvVZ"
)

// kept are the flags that name the request.
var kept = set("request header user-agent cookie user json url")

// bodies are the flags with which curl sends a body. Only the method comes of them.
var bodies = set("data data-ascii data-binary data-raw data-urlencode form form-string upload-file")

// valued are the other flags that the next word belongs to.
var valued = set(`abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config connect-timeout connect-to continue-at
	cookie-jar create-file-mode crlfile curves delegation dns-interface dns-ipv4-addr dns-ipv6-addr dns-servers doh-url dump-header ech
	egd-file engine etag-compare etag-save expect100-timeout ftp-account ftp-alternative-to-user ftp-method ftp-port ftp-ssl-ccc-mode
	happy-eyeballs-timeout-ms haproxy-clientip hostpubmd5 hostpubsha256 hsts interface ip-tos ipfs-gateway keepalive-cnt keepalive-time
	key key-type krb libcurl limit-rate local-port login-options mail-auth mail-from mail-rcpt max-filesize max-redirs max-time
	netrc-file noproxy oauth2-bearer output output-dir parallel-max parallel-max-host pass pinnedpubkey preproxy proto proto-default
	proto-redir proxy proxy-cacert proxy-capath proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile proxy-header proxy-key
	proxy-key-type proxy-pass proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype proxy-tlspassword
	proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file range rate referer request-target resolve retry retry-delay
	retry-max-time sasl-authzid service-name sigalgs socks4 socks4a socks5 socks5-gssapi-service socks5-hostname speed-limit
	speed-time stderr telnet-option tftp-blksize time-cond tls-max tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii
	trace-config unix-socket upload-flags url-query variable vlan-priority write-out`)

// alone are the flags without a value whose names begin others.
var alone = set("head crlf ftp-ssl-ccc keepalive netrc parallel socks5-gssapi")

func set(names string) map[string]bool {
	m := make(map[string]bool)
	for _, name := range strings.Fields(names) {
		m[name] = true
	}
	return m
}

// meant returns the flag that a name is or, as curl allows, begins, and whether the flag has a value. A name that begins
// several of them is an error of curl: it counts as one with a value.
func meant(name string) (flag string, hasValue bool) {
	switch {
	case alone[name]:
		return name, false
	case kept[name], bodies[name], valued[name]:
		return name, true
	}
	for _, flags := range []map[string]bool{kept, bodies, valued} {
		for other := range flags {
			if !strings.HasPrefix(other, name) {
				continue
			}
			if flag != "" {
				return name, true
			}
			flag = other
		}
	}
	if flag == "" {
		return name, false
	}
	return flag, true
}
