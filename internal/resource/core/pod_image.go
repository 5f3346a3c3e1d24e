package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// The grammar of image references (github.com/distribution/reference).
var (
	imageName   = field.Pattern(`^(?:` + imageDomain + `/)?` + imagePath + `(?:/` + imagePath + `)*$`)
	imageTag    = field.Pattern(`^\w[\w.-]{0,127}$`)
	imageID     = field.Pattern(`^[a-f0-9]{64}$`)
	imageDigest = field.Pattern(`^(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$`)
)

const (
	// imageLabel is a part of a host name. A domain is a host name or an IPv6 address in brackets, with a port
	// if any. A path is in lower case, such as library/my-app.
	imageLabel  = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	imageDomain = `(?:` + imageLabel + `(?:\.` + imageLabel + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	imagePath   = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// pullPolicy returns the default pull policy of an image: Always for the tag latest, which is
// implied if there is neither a tag nor a digest. A text that is not a valid image reference
// has no tag.
func pullPolicy(image string) corev1.PullPolicy {
	if imageTagOf(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func imageTagOf(image string) string {
	if tag, ok := plainImageTag(image); ok {
		return tag
	}
	return parsedImageTag(image)
}

// parsedImageTag is imageTagOf by the grammar.
func parsedImageTag(image string) string {
	// 64 hexadecimal digits are the ID of an image, which the grammar does not allow as a name.
	if imageID().MatchString(image) {
		return ""
	}
	name, digest, digested := strings.Cut(image, "@")
	if digested && !imageDigest().MatchString(digest) {
		return ""
	}
	tag, tagged := "", false
	// A colon before the last slash belongs to the port of the domain: localhost:5000/app has no tag.
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag, tagged = name[:colon], name[colon+1:], true
	}
	if tagged && !imageTag().MatchString(tag) || !imageName().MatchString(name) || len(fullImageName(name)) > 255 {
		return ""
	}
	if !tagged && !digested {
		return "latest"
	}
	return tag
}

// plainImageTag returns the tag of an image reference as most are written: parts of lower-case letters and digits with
// single separators, and a tag. It returns false for all others, which may be valid too.
func plainImageTag(image string) (string, bool) {
	if len(image) > maxPlainImage {
		return "", false
	}
	colon := strings.LastIndexByte(image, ':')
	if colon < 0 || strings.IndexByte(image[colon:], '/') >= 0 {
		return "", false
	}
	name, tag := image[:colon], image[colon+1:]
	letter := false // whether a separator may follow
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			letter = true
		case letter && (c == '.' || c == '-' || c == '/'):
			letter = false
		default:
			return "", false
		}
	}
	for i := range len(tag) {
		switch c := tag[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_':
		case i > 0 && (c == '.' || c == '-'):
		default:
			return "", false
		}
	}
	return tag, letter && tag != ""
}

// maxPlainImage is a length with which an image is below all limits: 255 of the repository with the default domain and
// path before it, and 128 of the tag.
const maxPlainImage = 128

// fullImageName returns the repository with the default domain and path, because the limit of
// the length applies to that. A first part that is not a host name belongs to the path.
func fullImageName(name string) string {
	first, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first:
		return "docker.io/" + name
	}
	return name
}
