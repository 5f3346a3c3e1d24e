package members

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// same are the flags that all members must have with the same value: otherwise one member would accept or assign what another one does
// not.
var same = []string{
	"api-audiences", "disable-admission-plugins", "encryption-provider-config-automatic-reload", "enable-admission-plugins",
	"service-account-issuer", "service-account-jwks-uri", "service-cluster-ip-range", "service-node-port-range",
}

// ownWords are words in the names of flags that each machine has values of its own for: addresses, paths, and how it joins.
var ownWords = []string{
	"address", "port", "data-dir", "dir", "file", "join", "token", "cluster-init", "cluster-reset", "member-name", "config", "hostname",
	"kubeconfig", "socket", "log", "v", "vmodule", "names", "cache-memory", "history-max-bytes", "ready-file",
}

// difference is a flag whose value differs between two members.
type difference struct {
	Flag, Here, There string
	Refused           bool
}

// differences compares the flags of this server with those of another one.
func differences(here, there map[string]string) (list []difference) {
	names := maps.Clone(here)
	maps.Copy(names, there)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := here[name], there[name]
		refused := slices.Contains(same, name)
		if a != b && (refused || !own(name)) {
			list = append(list, difference{name, a, b, refused})
		}
	}
	return list
}

// compared returns the flags that are compared with those of another member. The others, such as tokens, are not sent.
func compared(flags map[string]string) map[string]string {
	out := maps.Clone(flags)
	maps.DeleteFunc(out, func(name, _ string) bool { return own(name) && !slices.Contains(same, name) })
	return out
}

// own reports whether each machine has a value of its own for a flag.
func own(flag string) bool {
	words := strings.Split(flag, "-")
	return slices.ContainsFunc(ownWords, func(w string) bool { return flag == w || slices.Contains(words, w) })
}

func (d difference) String() string {
	return fmt.Sprintf("--%s is %q there and %q here", d.Flag, d.There, d.Here)
}
