package reevetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// BinaryVariable is the environment variable that names the program.
const BinaryVariable = "REEVE_APISERVER"

const (
	startTimeout = 30 * time.Second
	resetTimeout = 30 * time.Second
	retryAfter   = 100 * time.Millisecond
	stopTimeout  = 10 * time.Second
	// The last bytes of the program's log that an error shows.
	logTail = 16 << 10
)

// Server is a running server. Its methods may be called from many goroutines.
type Server struct {
	ready   ready
	command *exec.Cmd
	stdin   io.WriteCloser
	log     *tail
	client  *http.Client

	stop    sync.Once
	stopped chan struct{}
	err     error
}

// ready is the line that the program prints.
type ready struct {
	URL                  string `json:"url"`
	Port                 int    `json:"port"`
	Kubeconfig           string `json:"kubeconfig"`
	CertificateAuthority string `json:"certificateAuthority"`
	Token                string `json:"token"`
}

// Option configures a server.
type Option func(*options)

type options struct {
	binary string
	words  []string
	stderr io.Writer
}

// Binary is the path of the program.
func Binary(path string) Option {
	return func(o *options) { o.binary = path }
}

// CRDs installs the CustomResourceDefinitions of files and folders before the server is ready.
func CRDs(paths ...string) Option {
	return each("--crd-dir", paths)
}

// Manifests creates the objects of files and folders before the server is ready.
func Manifests(paths ...string) Option {
	return each("--manifests", paths)
}

// TLS serves HTTPS; the kubeconfig carries the authority.
func TLS() Option {
	return Flags("--tls")
}

// RBAC checks requests against the stored roles and bindings. It implies HTTPS. The kubeconfig is the administrator's.
func RBAC() Option {
	return Flags("--authorization-mode", "RBAC")
}

// Flags are further words of the command line; reeve-apiserver --help lists them.
func Flags(words ...string) Option {
	return func(o *options) { o.words = append(o.words, words...) }
}

// Stderr gets the log of the program, which is otherwise in errors and in the output of a failed test only. The variable RUST_LOG
// sets its level.
func Stderr(writer io.Writer) Option {
	return func(o *options) { o.stderr = writer }
}

func each(flag string, values []string) Option {
	return func(o *options) {
		for _, value := range values {
			o.words = append(o.words, flag, value)
		}
	}
}

// Start starts a server that ends with the test. Its log is in the output of a test that fails.
func Start(t testing.TB, list ...Option) *Server {
	t.Helper()
	server, err := New(t.Context(), list...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := server.Stop()
		if log := server.log.String(); log != "" && (t.Failed() || err != nil) {
			t.Logf("the log of reeve-apiserver:\n%s", log)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return server
}

// New starts a server and returns when it is ready. Call [Server.Stop] at the end; the end of ctx does not stop it.
func New(ctx context.Context, list ...Option) (*Server, error) {
	var o options
	for _, option := range list {
		option(&o)
	}
	binary, err := find(o.binary)
	if err != nil {
		return nil, err
	}
	words := append([]string{"--listen", "127.0.0.1:0", "--output", "json", "--control", "--exit-with-stdin"}, o.words...)
	server := &Server{
		command: exec.Command(binary, words...),
		log:     &tail{also: o.stderr},
		stopped: make(chan struct{}),
	}
	server.command.Stderr = server.log
	if server.stdin, err = server.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("reevetest: %w", err)
	}
	// Not StdoutPipe, which may not be read while Wait runs.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("reevetest: %w", err)
	}
	server.command.Stdout = writer
	err = server.command.Start()
	writer.Close()
	if err != nil {
		reader.Close()
		return nil, fmt.Errorf("reevetest: %w", err)
	}
	go func() {
		server.err = server.command.Wait()
		close(server.stopped)
	}()
	line, err := server.firstLine(ctx, reader)
	if err == nil {
		err = json.Unmarshal(line, &server.ready)
	}
	if err == nil {
		server.client, err = server.newClient()
	}
	if err != nil {
		server.kill()
		return nil, fmt.Errorf("reevetest: %s did not become ready: %w\n%s", binary, err, server.log)
	}
	return server, nil
}

// find returns the path of the program.
func find(path string) (string, error) {
	if path == "" {
		path = os.Getenv(BinaryVariable)
	}
	if path == "" {
		path = "reeve-apiserver"
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("reevetest: %w; build it (docs/any-language.md says how), or name it in %s", err, BinaryVariable)
	}
	return found, nil
}

// firstLine reads the line that the program prints when it is ready.
func (s *Server) firstLine(ctx context.Context, stdout io.ReadCloser) ([]byte, error) {
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		defer stdout.Close()
		buffered := bufio.NewReader(stdout)
		line, err := buffered.ReadBytes('\n')
		read <- result{line, err}
		// The program must not block on a full pipe.
		_, _ = io.Copy(io.Discard, buffered)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case result := <-read:
		if result.err != nil {
			<-s.stopped
			return nil, errors.Join(errors.New("the program ended"), s.err)
		}
		return result.line, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newClient returns an HTTP client with the administrator's credentials.
func (s *Server) newClient() (*http.Client, error) {
	// Without the proxies of the environment.
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if authority := s.CertificateAuthority(); len(authority) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authority) {
			return nil, errors.New("the certificate authority is not in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: &withToken{transport, s.Token()}}, nil
}

// withToken adds a bearer token to requests.
type withToken struct {
	*http.Transport
	token string
}

// RoundTrip implements http.RoundTripper.
func (w *withToken) RoundTrip(request *http.Request) (*http.Response, error) {
	if w.token != "" && request.Header.Get("Authorization") == "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.Transport.RoundTrip(request)
}

// URL is the address of the server, such as http://127.0.0.1:43127.
func (s *Server) URL() string { return s.ready.URL }

// Port is the port of the server.
func (s *Server) Port() int { return s.ready.Port }

// Kubeconfig is a kubeconfig with the rights of an administrator.
func (s *Server) Kubeconfig() []byte { return []byte(s.ready.Kubeconfig) }

// WriteKubeconfig writes the kubeconfig to a file of the test, and returns its path: for kubectl, and for programs that are
// tested as processes.
func (s *Server) WriteKubeconfig(t testing.TB) string {
	t.Helper()
	path := t.TempDir() + string(os.PathSeparator) + "kubeconfig"
	if err := os.WriteFile(path, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// CertificateAuthority is the authority that clients trust, in PEM; empty without TLS.
func (s *Server) CertificateAuthority() []byte { return []byte(s.ready.CertificateAuthority) }

// Token is the administrator's bearer token; empty where requests need none.
func (s *Server) Token() string { return s.ready.Token }

// Client is an HTTP client with the rights of an administrator, for requests to [Server.URL].
func (s *Server) Client() *http.Client { return s.client }

// Log is the end of the program's log.
func (s *Server) Log() string { return s.log.String() }

// Stop stops the server and waits for its end. It may be called again.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		s.client.CloseIdleConnections()
		// The program stops at the end of its standard input, as when this process is killed.
		_ = s.stdin.Close()
		select {
		case <-s.stopped:
		case <-time.After(stopTimeout):
			s.kill()
			s.err = fmt.Errorf("it did not stop within %s and was killed", stopTimeout)
		}
	})
	if s.err != nil {
		return fmt.Errorf("reevetest: reeve-apiserver: %w", s.err)
	}
	return nil
}

func (s *Server) kill() {
	_ = s.stdin.Close()
	_ = s.command.Process.Kill()
	<-s.stopped
}

// tail keeps the last bytes that are written to it.
type tail struct {
	also io.Writer

	mutex sync.Mutex
	kept  bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.kept.Write(text)
	if more := t.kept.Len() - logTail; more > 0 {
		t.kept.Next(more)
	}
	if t.also != nil {
		return t.also.Write(text)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.kept.String()
}
