package tracing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// kept keeps the spans that are sent.
type kept struct{ spans []sdk.ReadOnlySpan }

func (k *kept) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	k.spans = append(k.spans, spans...)
	return nil
}

func (*kept) Shutdown(context.Context) error { return nil }

// TestWhatSpansKeep checks that spans of requests have no credentials and no long texts.
func TestWhatSpansKeep(t *testing.T) {
	sent := &kept{}
	tracer := New(sdk.NewTracerProvider(sdk.WithBatcher(sent)))
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	ctx, span := tracer.Start(t.Context(), "outer")
	span.Set(attribute.String("long", strings.Repeat("ä", 10_000)), attribute.Int("number", 7))
	url := strings.Replace(server.URL, "//", "//jane:password@", 1) + "/a?token=secret&access_token=secret&b=c"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: Transport(http.DefaultTransport)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	span.End()
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[attribute.Key]attribute.Value{}
	for _, s := range sent.spans {
		for _, a := range s.Attributes() {
			got[a.Key] = a.Value
		}
	}
	if want := server.URL + "/a?token=REDACTED&access_token=REDACTED&b=c"; got["url.full"].AsString() != want {
		t.Errorf("the URL is %s, want %s", got["url.full"].AsString(), want)
	}
	if text := got["long"].AsString(); text != strings.Repeat("ä", maxText/2) {
		t.Errorf("a long text has %d bytes", len(text))
	}
	if got["number"].AsInt64() != 7 {
		t.Error("the number is lost")
	}
}
