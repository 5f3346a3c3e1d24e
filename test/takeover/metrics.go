package takeover

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metrics returns the values of metrics without labels of the server at a URL.
func Metrics(ctx context.Context, client *http.Client, url, token string, names ...string) (values []float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, rest, ok := strings.Cut(string(text), "\n"+name+" ")
		if !ok {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}
