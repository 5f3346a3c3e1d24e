package kubectlhistory

import (
	"context"
	"net/http"
)

// Remote is the server that a kubeconfig names, for other commands that are clients of any server.
type Remote struct {
	URL    string      // without a slash at its end
	Header http.Header // with the credentials, unless they are a certificate
	// Transport has the client certificate, the authorities that the server's certificate is verified with, and the proxy.
	Transport *http.Transport
}

// Connect reads kubeconfigs as the subcommands do. kubeconfig and kubecontext are the values of --kubeconfig and --context; they may
// be empty. It runs the program for credentials, if the kubeconfig names one, but sends nothing to the server.
func Connect(ctx context.Context, kubeconfig, kubecontext string, getenv func(string) string) (*Remote, error) {
	c := connection{kubeconfig: kubeconfig, context: kubecontext, getenv: getenv}
	cl, _, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Remote{URL: cl.base, Header: cl.header, Transport: cl.http.Transport.(*http.Transport)}, nil
}
