package accesslog

// A Reason is why a line could not be read.
type Reason struct{ Text, Remedy string }

// The reasons.
var (
	Empty        = &Reason{"the line is empty", "none is needed: it is no request"}
	TooLong      = &Reason{"the line is longer than 64 KiB", "a line must be one request"}
	NotCLF       = &Reason{"not a line of the common or combined log format", `such a line is: 192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326 "-" "curl/8". For logs without the last two fields use -format common, for JSON lines -format json`}
	NoTime       = &Reason{"no field has the time", "-map time=FIELD names the field"}
	WrongTime    = &Reason{"the time cannot be read", "it must be like 10/Oct/2026:13:55:36 +0000 or 2026-10-10T13:55:36Z, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970"}
	NoAddress    = &Reason{"no field has the client's address", "-map addr=FIELD names the field"}
	NoRequest    = &Reason{"no field has the method and the URL", "-map method=FIELD,url=FIELD names the fields, or -map request=FIELD one with both"}
	WrongRequest = &Reason{"the request is not a method, a path and a version of HTTP", "none is needed: net/http answers such requests with 400, before any limiter"}
	WrongURL     = &Reason{"the URL of the request cannot be parsed", "none is needed: net/http answers such requests with 400, before any limiter"}
	WrongStatus  = &Reason{"the status is not a number from 100 to 999", "it must be like 200. In JSON lines, -map status=FIELD names another field"}
	WrongSize    = &Reason{"the size of the answer is not a number", "it must be like 2326. In JSON lines, -map bytes=FIELD names another field"}
	FewFields    = &Reason{"there are fewer quoted fields than -extra names", "-extra names the fields after the user agent, in their order"}
	NotJSON      = &Reason{"the line is not a JSON object", "for other logs use -format combined or -format common"}
	BrokenFile   = &Reason{"the file cannot be read to its end", "lines after this one are missing: get the file again, or compress it again"}
)
