package rest

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// spanNames are kube-apiserver's names of the spans of verbs. Long-running requests have none.
var spanNames = map[string]string{
	"get": "Get", "list": "List", "create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete",
	"deletecollection": "Delete",
}

// startVerb begins the span of a verb. It returns the zero Span if the request is not traced.
func startVerb(w http.ResponseWriter, r *http.Request, info *request.Info) (context.Context, tracing.Span) {
	ctx := r.Context()
	name := spanNames[info.Verb]
	if name == "" || !tracing.FromContext(ctx).Recording() {
		return ctx, tracing.Span{}
	}
	// A create has no name in its path, but is about one object.
	scope := "cluster"
	switch {
	case info.Name != "" || info.Verb == "create":
		scope = "resource"
	case info.Namespace != "":
		scope = "namespace"
	}
	ctx, span := tracing.Start(ctx, name)
	span.Set(
		attribute.String("accept", r.Header.Get("Accept")), attribute.String("audit-id", w.Header().Get("Audit-Id")),
		attribute.String("client", r.RemoteAddr), attribute.String("api-group", info.Group),
		attribute.String("api-version", info.Version), attribute.String("name", info.Name),
		attribute.String("subresource", info.Subresource), attribute.String("namespace", info.Namespace),
		attribute.String("protocol", r.Proto), attribute.String("resource", info.Resource), attribute.String("scope", scope),
		attribute.String("url", request.RedactedURI(r.URL)), attribute.String("user-agent", r.UserAgent()),
		attribute.String("verb", r.Method),
	)
	return ctx, span
}
