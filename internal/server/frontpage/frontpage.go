// Package frontpage serves a page that describes the server to a person who opens its address in a browser. Other
// clients get the same response as from kube-apiserver at that path.
package frontpage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net"
	"net/http"
	"strings"

	"github.com/keelson-dev/keelson/internal/console"
)

// Documentation is the address of the documentation.
const Documentation = "https://github.com/keelson-dev/keelson/tree/main/docs"

// Page is the content of the page. Everybody may read it.
type Page struct {
	Version    string // of the program
	Kubernetes string // the version whose API is served
	// Kubeconfig is the path of the administrator's kubeconfig, "" if there is none. Only browsers on the same machine see it.
	Kubeconfig string
	// Console is set if the server has a console.
	Console bool
	// Ready returns an error if the server is not ready.
	Ready func(context.Context) error
}

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:42em;margin:4em auto;padding:0 1em;color-scheme:light dark}` +
	`code{font-size:.95em}`

// New returns the handler of the page, for requests for which Wanted returns true.
func New(p Page) http.Handler {
	sum := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = fmt.Fprint(w, p.text(r)) // the client may be gone
	})
}

// Path is the path of the page.
const Path = "/"

// Wanted reports whether a browser requests the page. The Accept header of browsers begins with text/html; kubectl
// and client libraries do not send that.
func Wanted(r *http.Request) bool {
	return r.URL.Path == Path && (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.HasPrefix(r.Header.Get("Accept"), "text/html")
}

func (p *Page) text(r *http.Request) string {
	state := "It is ready."
	if p.Ready(r.Context()) != nil { // the reason is withheld, as in /readyz
		state = "It is not ready."
	}
	kubeconfig := ""
	if p.Kubeconfig != "" && local(r) {
		kubeconfig = "<p>The kubeconfig of its administrator is <code>" + html.EscapeString(p.Kubeconfig) + "</code>: " +
			"<code>" + html.EscapeString(Command(p.Kubeconfig)) + "</code></p>\n"
	}
	page := ""
	if p.Console {
		page = "<p><a href=\"" + console.Root + "\">Open the console</a></p>\n"
	}
	return "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>Keelson</title>\n<style>" + style + "</style>\n" +
		"<h1>Keelson</h1>\n" +
		"<p>This is a Kubernetes API server: Keelson " + html.EscapeString(p.Version) + ", which serves the API of Kubernetes " +
		html.EscapeString(p.Kubernetes) + ". " + state + "</p>\n" + page + kubeconfig +
		"<p>It is used with kubectl and other clients of Kubernetes: <a href=\"" + Documentation + "\">documentation</a>.</p>\n</html>\n"
}

// Command returns a shell command to try first. kubeconfig is a path; "" means the kubeconfig that kubectl finds
// by itself.
func Command(kubeconfig string) string {
	if kubeconfig == "" {
		return "kubectl get namespaces"
	}
	return "kubectl --kubeconfig " + quoted(kubeconfig) + " get namespaces"
}

// ConsoleCommand returns the shell command that opens the console without a token. For kubeconfig see Command.
func ConsoleCommand(kubeconfig string) string {
	if kubeconfig == "" {
		return "keelson console"
	}
	return "keelson console --kubeconfig " + quoted(kubeconfig)
}

// quoted returns a path as one argument of a shell command.
func quoted(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
	}
	if strings.ContainsFunc(path, func(r rune) bool { return !plain(r) }) {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// local reports whether the request comes from the machine of the server.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip.IsLoopback()
}
