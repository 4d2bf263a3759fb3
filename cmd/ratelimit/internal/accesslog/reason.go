package accesslog

// A Reason is why a line could not be read.
type Reason int

const (
	good Reason = iota
	Empty
	TooLong
	NotCommon
	NotCombined
	NoTime
	WrongTime
	NoAddress
	NoRequest
	WrongRequest
	WrongURL
	WrongStatus
	WrongSize
	FewFields
	NotJSON
	BrokenFile

	Reasons // their number
)

var texts = [Reasons][2]string{
	Empty:        {"the line is empty", "none is needed: it is no request"},
	TooLong:      {"the line is longer than 64 KiB", "a line must be one request"},
	NotCommon:    {"not a line of the common log format", `such a line is: 192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326. For JSON lines use -format json`},
	NotCombined:  {"not a line of the combined log format", `such a line is: 192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326 "-" "curl/8". For logs without the last two fields use -format common, for JSON lines -format json`},
	NoTime:       {"no field has the time", "-map time=FIELD names the field"},
	WrongTime:    {"the time cannot be read", "it must be like 10/Oct/2026:13:55:36 +0000 or 2026-10-10T13:55:36Z, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970"},
	NoAddress:    {"no field has the client's address", "-map addr=FIELD names the field"},
	NoRequest:    {"no field has the method and the URL", "-map method=FIELD,url=FIELD names the fields, or -map request=FIELD one with both"},
	WrongRequest: {"the request is not a method, a path and a version of HTTP", "none is needed: net/http answers such requests with 400, before any limiter"},
	WrongURL:     {"the URL of the request cannot be parsed", "none is needed: net/http answers such requests with 400, before any limiter"},
	WrongStatus:  {"the status is not a number from 100 to 999", "it must be like 200. In JSON lines, -map status=FIELD names another field"},
	WrongSize:    {"the size of the answer is not a number", "it must be like 2326. In JSON lines, -map bytes=FIELD names another field"},
	FewFields:    {"there are fewer quoted fields than -extra names", "-extra names the fields after the user agent, in their order"},
	NotJSON:      {"the line is not a JSON object", "for other logs use -format combined or -format common"},
	BrokenFile:   {"the file cannot be read to its end", "lines after this one are missing: get the file again, or compress it again"},
}

// String says what is wrong.
func (r Reason) String() string { return texts[r][0] }

// Remedy says what would be right.
func (r Reason) Remedy() string { return texts[r][1] }
