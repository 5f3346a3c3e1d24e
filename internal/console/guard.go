package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

// HeaderName is a header that the page sends with each request. For a Proxy it has the secret of the session.
// Browsers let a page of another origin send it only after a preflight request, which is refused.
const HeaderName = "X-Keelson-Console"

// guard checks requests to a Proxy before anything else looks at them. Other pages in the browser of the person, and names that
// resolve to 127.0.0.1, must not reach the API with the credentials of the kubeconfig.
type guard struct{ hosts []string }

func newGuard(port int) guard {
	p := strconv.Itoa(port)
	hosts := []string{"127.0.0.1:" + p, "localhost:" + p}
	if port == 80 {
		hosts = append(hosts, "127.0.0.1", "localhost") // browsers leave the port out
	}
	return guard{hosts}
}

// refusal is why a request is refused.
type refusal struct {
	code    int
	reason  metav1.StatusReason
	message string
}

func forbidden(message string) *refusal {
	return &refusal{http.StatusForbidden, metav1.StatusReasonForbidden, message}
}

// check returns the reason to refuse a request, nil if it is accepted. It does not check the session.
func (g *guard) check(r *http.Request) *refusal {
	if !slices.Contains(g.hosts, r.Host) { // DNS rebinding
		return &refusal{http.StatusMisdirectedRequest, metav1.StatusReasonForbidden, "the console is served at http://" + g.hosts[0] + " only"}
	}
	origins, own := r.Header["Origin"], false
	if len(origins) > 0 {
		if own = len(origins) == 1 && origins[0] == "http://"+r.Host; !own {
			return forbidden("the console answers no requests of other origins")
		}
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		navigation := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
		if site != "same-origin" && !(site == "none" && navigation) {
			return forbidden("the console answers no requests of other sites")
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return g.checkUpgrade(r, own)
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return &refusal{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the console does not forward this method"}
	}
	switch {
	case proxy.IsUpgrade(r):
		return forbidden("only GET can change the protocol")
	case !own:
		return forbidden("a request that changes something needs the header Origin")
	case r.Header.Get(HeaderName) == "":
		return forbidden("a request that changes something needs the header " + HeaderName)
	}
	return nil
}

// checkUpgrade returns the reason to refuse a request for another protocol. Browsers let every page open
// WebSockets to every server, so only the header Origin shows which page has sent such a request.
func (g *guard) checkUpgrade(r *http.Request, own bool) *refusal {
	switch {
	case !proxy.IsUpgrade(r):
		return nil
	case r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || len(r.Header["Upgrade"]) != 1:
		return forbidden("the protocol can be changed to WebSocket only")
	case !own:
		return forbidden("a WebSocket needs the header Origin")
	}
	return nil
}

// forwards reports whether a Proxy forwards a path to the server.
func forwards(path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return strings.HasPrefix(path, "/") && (slices.Contains(
		[]string{"api", "apis", "openapi", "version", "metrics", "healthz", "livez", "readyz"}, first) ||
		first == "debug" && rest == "api_priority_and_fairness/dump_requests")
}
