package memoryetcd

import (
	"io"
	"net/http"
)

// plainHTTP serves the requests with which programs that start etcd find out that it runs.
func (s *Server) plainHTTP() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]string{
		"/health":  `{"health":"true","reason":""}`,
		"/version": `{"etcdserver":"` + Version + `","etcdcluster":"3.6.0","storage":"3.6.0"}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer) // an error means that the client has gone
		})
	}
	for _, path := range []string{"/livez", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	}
	return mux
}
