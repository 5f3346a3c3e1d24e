package console

import (
	"context"

	"github.com/chromedp/cdproto/input"
)

// insert puts a text where the focus is, as an input method does.
func insert(ctx context.Context, text string) error { return input.InsertText(text).Do(ctx) }
