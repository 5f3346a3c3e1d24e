package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

const (
	// smallLimit is how long a request without a large body takes at most, with its repetitions.
	smallLimit = time.Minute
	// attempts is how often a request is sent at most. The pause before a repetition is random, and grows up to longestPause.
	attempts     = 4
	longestPause = 5 * time.Second

	otherRegion = "us-east-1" // the default region of a service that is not AWS
)

// s3Bucket is a Bucket that is the part of a bucket of an S3 service below a prefix.
type s3Bucket struct {
	client *s3.Client
	bucket string
	prefix string // "", or it ends with a slash
	url    string // for messages
}

// parseS3 returns the bucket and the prefix of a URL without its scheme. The URL is not in the messages: it could have a password.
func parseS3(rest string) (bucket, prefix string, err error) {
	bucket, prefix, _ = strings.Cut(rest, "/")
	if !validBucket(bucket) {
		return "", "", errors.New("the address of the bucket is not s3://BUCKET/PREFIX: BUCKET has 3 to 63 lower-case letters, digits, " +
			"dots and hyphens, and begins and ends with a letter or a digit")
	}
	if prefix == "" {
		return bucket, "", nil
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if len(prefix) > maxPrefix || slices.ContainsFunc(strings.Split(prefix, "/"), func(p string) bool { return !validPart(p) }) {
		return "", "", fmt.Errorf("the address of the bucket is not s3://BUCKET/PREFIX: PREFIX has up to %d letters, digits and characters of "+
			"-_.=/, no part of it is empty or begins with a dot", maxPrefix)
	}
	return bucket, prefix + "/", nil
}

// validBucket reports whether a name is one of a bucket; see "General purpose bucket naming rules" of Amazon S3.
func validBucket(name string) bool {
	const shortest, longest, ends = 3, 63, "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(name) >= shortest && len(name) <= longest && strings.Trim(name, ends+".-") == "" && !strings.Contains(name, "..") &&
		strings.ContainsRune(ends, rune(name[0])) && strings.ContainsRune(ends, rune(name[len(name)-1]))
}

// checkEndpoint returns an error if Options.Endpoint is wrong. The endpoint is not in it: it could have a password.
func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the endpoint of S3 is not of the form https://HOST:PORT or http://HOST:PORT")
	}
	return nil
}

// openS3 returns a Bucket in a bucket of an S3 service. dial replaces the dialing of connections in tests; it is otherwise nil.
func openS3(ctx context.Context, name, prefix string, o Options, dial dialer) (b Bucket, closeBucket func() error, err error) {
	if o.Endpoint != "" {
		if err := checkEndpoint(o.Endpoint); err != nil {
			return nil, nil, err
		}
	}
	client, transport, err := newHTTPClient(o.CAFile, dial)
	if err != nil {
		return nil, nil, err
	}
	load := func(ctx context.Context) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, config.WithHTTPClient(client), config.WithLogger(logging.Nop{}), config.WithRegion(o.Region))
	}
	c, err := load(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the settings of AWS in the environment and in the shared files: %w", err)
	}
	c.Credentials = newCredentials(load)
	if c.Region == "" && o.Endpoint != "" {
		c.Region = otherRegion
	}
	b = &s3Bucket{s3.NewFromConfig(c, o.apply), name, prefix, schemeS3 + name + "/" + prefix}
	if c.Region == "" {
		return nil, nil, fmt.Errorf("the region of the bucket %s is not known: give --backup-s3-region or AWS_REGION", name)
	}
	return b, func() error { transport.CloseIdleConnections(); return nil }, nil
}

// apply applies the options to those of a client.
func (o Options) apply(c *s3.Options) {
	c.Retryer = retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts, r.MaxBackoff = attempts, longestPause })
	if o.Endpoint != "" {
		c.BaseEndpoint = &o.Endpoint
	}
	if c.BaseEndpoint == nil { // it may also be set by AWS_ENDPOINT_URL
		return
	}
	c.UsePathStyle = !o.VirtualHost
	// By default the SDK adds checksums of a newer kind, which some other services refuse. The signature has a checksum as well.
	c.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	c.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

// fail returns the error of a method.
func (b *s3Bucket) fail(doing, name string, err error) error {
	return objectError(doing, name, b.url, explain(err))
}

// key returns the key of an object of Put.
func (b *s3Bucket) key(name string) *string { return new(b.prefix + name) }

// Get implements Bucket.
func (b *s3Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	out, err := b.get(ctx, name, b.key(name))
	if err != nil {
		return nil, b.fail("reading", name, err)
	}
	return &s3Reader{ctx, out.Body, b, name}, nil
}

// get sends GetObject.
func (b *s3Bucket) get(ctx context.Context, name string, key *string) (*s3.GetObjectOutput, error) {
	if err := begin(ctx, name); err != nil {
		return nil, err
	}
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: key})
	if err != nil {
		return nil, err
	}
	if aws.ToString(out.ETag) == "" {
		return nil, errors.Join(errNotS3, out.Body.Close())
	}
	return out, nil
}

// s3Reader is the body of an object.
type s3Reader struct {
	ctx context.Context
	io.ReadCloser
	bucket *s3Bucket
	name   string
}

func (r *s3Reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil { // the connection may have the rest of the body already
		return 0, err
	}
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF { // a body that is too short ends with io.ErrUnexpectedEOF
		err = r.bucket.fail("reading", r.name, err)
	}
	return n, err
}

// List implements Bucket.
func (b *s3Bucket) List(ctx context.Context) (list []Object, err error) {
	var next *string
	for {
		out, err := b.page(ctx, next)
		if err != nil {
			return nil, fmt.Errorf("listing the bucket %s: %w", b.url, explain(err))
		}
		for _, o := range out.Contents {
			name, ok := strings.CutPrefix(aws.ToString(o.Key), b.prefix)
			if ok && checkName(name) == nil {
				list = append(list, Object{name, aws.ToInt64(o.Size)})
			}
		}
		if !*out.IsTruncated {
			break
		}
		next = out.NextContinuationToken
	}
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// page returns the page of the list that begins with a token. IsTruncated is not nil.
func (b *s3Bucket) page(ctx context.Context, token *string) (*s3.ListObjectsV2Output, error) {
	ctx, cancel := context.WithTimeout(ctx, smallLimit)
	defer cancel()
	out, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: &b.prefix, ContinuationToken: token})
	if err != nil {
		return nil, err
	}
	// The SDK takes any XML for a list, for example the page of a web server. A page that does not lead on would be read for ever.
	next := aws.ToString(out.NextContinuationToken)
	if out.IsTruncated == nil || *out.IsTruncated && (next == "" || next == aws.ToString(token)) {
		return nil, errNotS3
	}
	return out, nil
}

// Delete implements Bucket.
func (b *s3Bucket) Delete(ctx context.Context, name string) error {
	return b.delete(ctx, name, b.key(name))
}

// delete sends DeleteObject.
func (b *s3Bucket) delete(ctx context.Context, name string, key *string) error {
	ctx, cancel := context.WithTimeout(ctx, smallLimit)
	defer cancel()
	err := begin(ctx, name)
	if err == nil {
		_, err = b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: key})
	}
	if notFound(err) {
		err = nil // AWS does not say so, but other services do
	}
	return b.fail("deleting", name, err)
}
