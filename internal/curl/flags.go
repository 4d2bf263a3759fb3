package curl

// shortFlags are the names of flags of one letter.
var shortFlags = map[byte]string{
	'A': "user-agent", 'b': "cookie", 'd': "data", 'e': "referer", 'F': "form", 'G': "get", 'H': "header", 'I': "head", 'K': "config",
	'r': "range", 'T': "upload-file", 'u': "user", 'X': "request", ':': "next",

	'0': "http1.0", '4': "ipv4", '6': "ipv6", 'a': "append", 'f': "fail", 'g': "globoff", 'i': "include", 'j': "junk-session-cookies",
	'J': "remote-header-name", 'k': "insecure", 'L': "location", 'n': "netrc", 'N': "no-buffer", 'O': "remote-name", 'q': "disable",
	'R': "remote-time", 's': "silent", 'S': "show-error", 'v': "verbose", 'Z': "parallel", '#': "progress-bar",

	'c': "cookie-jar", 'C': "continue-at", 'D': "dump-header", 'E': "cert", 'h': "help", 'm': "max-time", 'o': "output", 'P': "ftp-port", 'Q': "quote",
	't': "telnet-option", 'U': "proxy-user", 'w': "write-out", 'x': "proxy", 'y': "speed-time", 'Y': "speed-limit", 'z': "time-cond",
}

// takesValue has the flags that the next word belongs to.
var takesValue = set(
	"user-agent", "cookie", "data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json", "referer", "form", "form-string", "header",
	"config", "range", "upload-file", "user", "request", "url", "url-query", "oauth2-bearer",

	"cookie-jar", "continue-at", "dump-header", "cert", "key", "max-time", "output", "output-dir", "ftp-port", "telnet-option", "proxy-user", "write-out",
	"proxy", "speed-time", "speed-limit", "time-cond", "abstract-unix-socket", "alt-svc", "aws-sigv4", "cacert", "capath", "cert-type",
	"ciphers", "connect-timeout", "connect-to", "crlfile", "curves", "dns-servers", "dns-interface", "doh-url", "engine",
	"expect100-timeout", "happy-eyeballs-timeout-ms", "haproxy-clientip", "hsts", "interface", "ipfs-gateway", "keepalive-time", "key-type", "limit-rate",
	"local-port", "max-filesize", "max-redirs", "netrc-file", "noproxy", "parallel-max", "pass", "pinnedpubkey", "proto",
	"proto-default", "proto-redir", "proxy-header", "proxy-cacert", "proxy1.0", "rate", "request-target", "resolve", "retry", "retry-delay",
	"retry-max-time", "service-name", "socks4", "socks4a", "socks5", "socks5-hostname", "stderr", "tls-max", "tls13-ciphers",
	"trace", "trace-ascii", "trace-config", "unix-socket", "preproxy", "etag-save", "etag-compare", "variable",

	"create-file-mode", "delegation", "dns-ipv4-addr", "dns-ipv6-addr", "egd-file", "ftp-account", "ftp-alternative-to-user", "ftp-method",
	"ftp-ssl-ccc-mode", "hostpubmd5", "hostpubsha256", "krb", "libcurl", "login-options", "mail-auth", "mail-from", "mail-rcpt", "proxy-capath",
	"proxy-cert", "proxy-cert-type", "proxy-ciphers", "proxy-crlfile", "proxy-key", "proxy-key-type", "proxy-pass", "proxy-pinnedpubkey",
	"proxy-service-name", "proxy-tls13-ciphers", "proxy-tlsauthtype", "proxy-tlspassword", "proxy-tlsuser", "pubkey", "quote", "random-file",
	"sasl-authzid", "socks5-gssapi-service", "tftp-blksize", "tlsauthtype", "tlspassword", "tlsuser", "ech",
)

// silent has flags that cannot change what the server receives. They are not worth a line.
var silent = set(
	"silent", "show-error", "verbose", "include", "fail", "insecure", "location", "progress-bar", "no-buffer", "output", "remote-name",
	"write-out", "max-time", "connect-timeout", "http1.1", "http2", "http3", "http2-prior-knowledge", "no-progress-meter", "fail-with-body",
	"ipv4", "ipv6", "retry", "cookie-jar", "dump-header", "tlsv1.2", "tlsv1.3", "keepalive", "no-keepalive", "ssl-no-revoke",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}
