package proxy

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxToken is the size limit of a tag or text of a page in bytes. After a larger one, the rest of the page is forwarded
// unchanged.
const maxToken = 64 << 10

// A Rewriter changes the responses of a server that does not know that it is behind a proxy: absolute paths in the links
// of its HTML pages and in the header Location get the prefix under which the proxy serves them. It also removes the
// headers with which the server would let pages of other origins use the proxy.
type Rewriter struct {
	// Prefix is the path of the proxy that stands for the root of the server.
	Prefix string
}

// NewRewriter returns the Rewriter for requests to a path of this server that is forwarded to the path target.
func NewRewriter(requested, target string) *Rewriter {
	if strings.HasSuffix(requested, "/") && !strings.HasSuffix(target, "/") {
		target += "/"
	}
	return &Rewriter{Prefix: strings.TrimSuffix(requested, target)}
}

// A LocationError means that the header Location of a response is not a URL.
type LocationError struct{ Err error }

// Error implements error.
func (e *LocationError) Error() string {
	return fmt.Sprintf("error trying to parse Location header: %v", e.Err)
}

// Unwrap returns the cause.
func (e *LocationError) Unwrap() error { return e.Err }

// forwardedURI returns the path at which the client reaches u.
func (rw *Rewriter) forwardedURI(u *url.URL) string {
	uri := path.Join(rw.Prefix, u.EscapedPath())
	if strings.HasSuffix(u.Path, "/") {
		uri += "/"
	}
	return uri
}

// response changes a response.
func (rw *Rewriter) response(response *http.Response) error {
	for _, name := range []string{"Credentials", "Headers", "Methods", "Origin"} {
		response.Header.Del("Access-Control-Allow-" + name)
	}
	if location := response.Header.Get("Location"); location != "" {
		u, err := url.Parse(location)
		if err != nil {
			return &LocationError{err}
		}
		response.Header.Set("Location", rw.link(u, response.Request))
		return nil
	}
	mediaType, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(mediaType) != "text/html" {
		return nil
	}
	return rw.page(response)
}

// link returns the text that replaces the link u in the response to request. Links to other servers and relative
// links stay as they are.
func (rw *Rewriter) link(u *url.URL, request *http.Request) string {
	elsewhere := u.Host != "" && u.Host != request.URL.Host && u.Host != request.Host
	if elsewhere || !strings.HasPrefix(u.Path, "/") {
		return u.String()
	}
	if u.Host != request.Host {
		u.Scheme, u.Host = "", ""
	}
	if strings.HasPrefix(u.Path, rw.Prefix) {
		return u.String()
	}
	slash := strings.HasSuffix(u.Path, "/")
	if u.Path = path.Join(rw.Prefix, u.Path); slash {
		u.Path += "/"
	}
	return u.String()
}

// page changes the links of an HTML page while it is forwarded.
func (rw *Rewriter) page(response *http.Response) error {
	unpacked, packed := io.Reader(response.Body), func(w io.Writer) io.WriteCloser { return nopCloser{w} }
	switch response.Header.Get("Content-Encoding") {
	case "":
	case "gzip":
		r, err := gzip.NewReader(response.Body)
		if err != nil {
			return fmt.Errorf("errorf making gzip reader: %w", err) // the text of kube-apiserver
		}
		unpacked, packed = r, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	case "deflate":
		unpacked = flate.NewReader(response.Body)
		packed = func(w io.Writer) io.WriteCloser {
			f, _ := flate.NewWriter(w, flate.BestCompression) // fails only for an invalid level
			return f
		}
	default:
		return nil // the links cannot be read
	}
	in, out := io.Pipe()
	body, request := response.Body, response.Request
	go func() {
		w := packed(out)
		err := rw.copyPage(w, unpacked, request)
		if err == nil {
			err = w.Close()
		}
		out.CloseWithError(err)
	}()
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	response.Body = &pageBody{PipeReader: in, server: body}
	return nil
}

// pageBody is the body of a page that is being changed. Closing it ends the goroutine that changes it.
type pageBody struct {
	*io.PipeReader
	server io.Closer
}

// Close implements io.Closer.
func (b *pageBody) Close() error { return errors.Join(b.PipeReader.Close(), b.server.Close()) }

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }

// copyPage copies a page and changes its links.
func (rw *Rewriter) copyPage(w io.Writer, r io.Reader, request *http.Request) error {
	tokens := html.NewTokenizer(r)
	tokens.SetMaxBuf(maxToken)
	for {
		var err error
		switch tokens.Next() {
		case html.ErrorToken:
			return copyRest(w, tokens, r)
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			rw.changeTag(&token, request)
			_, err = io.WriteString(w, token.String())
		default:
			_, err = w.Write(tokens.Raw())
		}
		if err != nil {
			return err
		}
	}
}

// copyRest copies what follows the last token: nothing at the end of the page, or the rest of it after a token that is
// too large.
func copyRest(w io.Writer, tokens *html.Tokenizer, r io.Reader) error {
	err := tokens.Err()
	if !errors.Is(err, html.ErrBufferExceeded) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		_, failed := w.Write(tokens.Raw()) // a tag that is cut off
		return errors.Join(err, failed)
	}
	for _, part := range [][]byte{tokens.Raw(), tokens.Buffered()} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	_, err = io.Copy(w, r)
	return err
}

// changeTag changes the links of a tag.
func (rw *Rewriter) changeTag(token *html.Token, request *http.Request) {
	for i := range token.Attr {
		attribute := &token.Attr[i]
		if !slices.Contains(linkTags[attribute.Key], token.DataAtom) {
			continue
		}
		if u, err := url.Parse(attribute.Val); err == nil { // otherwise it is not a link
			attribute.Val = rw.link(u, request)
		}
	}
}

// linkTags are the tags for which an attribute is a link (HTML 4.01, index of attributes; HTML, index of attributes).
var linkTags = map[string][]atom.Atom{
	"action":     {atom.Form},
	"background": {atom.Body},
	"cite":       {atom.Blockquote, atom.Del, atom.Ins, atom.Q},
	"classid":    {atom.Object},
	"codebase":   {atom.Object, atom.Applet},
	"data":       {atom.Object},
	"formaction": {atom.Input, atom.Button},
	"href":       {atom.A, atom.Area, atom.Base, atom.Link},
	"icon":       {atom.Command},
	"longdesc":   {atom.Frame, atom.Iframe, atom.Img},
	"manifest":   {atom.Html},
	"poster":     {atom.Video},
	"profile":    {atom.Head},
	"src": {
		atom.Audio, atom.Embed, atom.Script, atom.Source, atom.Video, atom.Frame, atom.Iframe, atom.Img, atom.Input,
	},
	"usemap": {atom.Img, atom.Input, atom.Object},
}
