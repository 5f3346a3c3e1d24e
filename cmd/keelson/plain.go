package main

import "regexp"

// plainPhrase is a phrase of Go or of a library in an error message, and the text for operators that replaces it.
type plainPhrase struct {
	found *regexp.Regexp
	said  string
}

// plainPhrases returns the phrases in the order in which they are replaced.
func plainPhrases() []plainPhrase {
	var out []plainPhrase
	for _, pair := range [][2]string{
		// Flags.
		{`invalid argument ("[^"]*") for "(?:-\w, )?(--[\w-]+)" flag: `, `$2: $1: `},
		{`("[^"]*"): strconv\.Parse(?:Int|Uint): parsing "[^"]*": invalid syntax`, `$1 is not a whole number`},
		{`("[^"]*"): strconv\.ParseFloat: parsing "[^"]*": invalid syntax`, `$1 is not a number`},
		{`("[^"]*"): strconv\.ParseBool: parsing "[^"]*": invalid syntax`, `$1 must be true or false`},
		{`("[^"]*"): strconv\.\w+: parsing "[^"]*": value out of range`, `$1 is too large or too small`},
		{`("[^"]*"): time: missing unit in duration "[^"]*"`, `$1 has no unit, such as 30s, 5m or 1h30m`},
		{`("[^"]*"): time: (?:invalid duration|unknown unit "[^"]*" in duration) "[^"]*"`,
			`$1 is not a duration such as 30s, 5m or 1h30m`},
		{`strconv\.\w+: parsing ("[^"]*"): (?:invalid syntax|value out of range)`, `$1 is not a number in the range`},
		// Files of YAML and JSON.
		{`error converting YAML to JSON: `, ``},
		{`error unmarshaling JSON: (?:while decoding JSON: )?`, ``},
		{`couldn't get version/kind; json parse error: `, ``},
		{`json: cannot unmarshal (\w+) into Go struct field (?:\w*\.)*?(\w+) of type [^\s:]+`,
			`the field $2 has a value of the wrong type ($1)`},
		{`json: cannot unmarshal (?:\w+) into Go value of type (?:struct \{.*? \}|[^\s:]+)`,
			`it does not consist of fields ("name: value")`},
		{`json: unknown field `, `unknown field `},
		{`yaml: (line \d+): `, `no valid YAML in $1: `},
		{`yaml: unmarshal errors: *`, `no valid YAML: `},
		// Connections and certificates.
		{`(?:Get|Post|Put|Delete|Patch) "([^"]*)": `, ``},
		{`dial (?:tcp|udp)\d? (\S+): connect: connection refused`,
			`nothing listens at $1 (connection refused); start the server, or correct the address`},
		{`dial (?:tcp|udp)\d?: lookup ([^\s:]+)(?: on \S+)?: no such host`, `there is no host with the name $1`},
		{`(?:dial|read|write) (?:tcp|udp)\d? (\S+): i/o timeout`, `$1 does not answer`},
		{`(?:dial|listen) (?:tcp|udp|unix|unixgram)\d? (\S+): (?:connect|bind): `, `$1: `},
		{`tls: failed to verify certificate: x509: `, `the certificate of the server is not accepted: `},
		{`tls: failed to find any PEM data in \w+ input`, `there is no certificate or key in PEM format in it`},
		{`context canceled`, `the program was told to stop`},
		{`context deadline exceeded`, `there was no answer in time`},
	} {
		out = append(out, plainPhrase{regexp.MustCompile(pair[0]), pair[1]})
	}
	return out
}

// plainMessage replaces phrases in an error message that only Go programmers understand.
func plainMessage(message string) string {
	for _, p := range plainPhrases() {
		message = p.found.ReplaceAllString(message, p.said)
	}
	return message
}
