package kubectlhistory

import (
	"context"
	"net/http"
)

// Remote is the server of a kubeconfig, for other commands that send requests to any API server.
type Remote struct {
	URL    string      // without a slash at its end
	Header http.Header // with the credentials, unless they are a certificate
	// Transport has the client certificate, the authorities that the server's certificate is verified with, and the proxy.
	Transport *http.Transport
}

// Connect reads kubeconfigs as the subcommands do. kubeconfig and kubecontext are the values of --kubeconfig and
// --context, or "". It runs the credential plug-in, if there is one in the kubeconfig, but sends no request to the
// server.
func Connect(ctx context.Context, kubeconfig, kubecontext string, getenv func(string) string) (*Remote, error) {
	c := connection{kubeconfig: kubeconfig, context: kubecontext, getenv: getenv}
	cl, _, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Remote{URL: cl.base, Header: cl.header, Transport: cl.http.Transport.(*http.Transport)}, nil
}
