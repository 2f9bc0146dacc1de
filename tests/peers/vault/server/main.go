// Command server runs a Vault in memory, without encryption on the way to it: the server of HashiCorp, with version 2 of its key-value
// store, and logins by token, AppRole and service account of Kubernetes. It takes the address to listen at, and prints the one it has.
// Like every new Vault it waits to be initialized and unsealed.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// An engine that is part of the program.
type builtin struct {
	name string
	kind consts.PluginType
}

// The engines that are part of the program, apart from those of every Vault.
var builtins = map[builtin]logical.Factory{
	{"kv", consts.PluginTypeSecrets}:            kv.Factory,
	{"approle", consts.PluginTypeCredential}:    approle.Factory,
	{"kubernetes", consts.PluginTypeCredential}: kubernetes.Factory,
}

// Returns the engines of a kind by their names.
func factories(kind consts.PluginType) map[string]logical.Factory {
	found := map[string]logical.Factory{}
	for each, factory := range builtins {
		if each.kind == kind {
			found[each.name] = factory
		}
	}
	return found
}

// The answers to Vault's questions about these engines.
type registry struct{}

func (registry) Contains(name string, kind consts.PluginType) bool {
	return builtins[builtin{name, kind}] != nil
}

func (registry) Get(name string, kind consts.PluginType) (func() (interface{}, error), bool) {
	factory := builtins[builtin{name, kind}]
	return func() (interface{}, error) { return factory, nil }, factory != nil
}

func (registry) Keys(kind consts.PluginType) (names []string) {
	for name := range factories(kind) {
		names = append(names, name)
	}
	return names
}

func (known registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, known.Contains(name, kind)
}

func (registry) IsBuiltinEntPlugin(string, consts.PluginType) bool {
	return false
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	core := must(vault.NewCore(&vault.CoreConfig{
		Physical:           must(inmem.NewInmem(nil, logger)),
		LogicalBackends:    factories(consts.PluginTypeSecrets),
		CredentialBackends: factories(consts.PluginTypeCredential),
		BuiltinRegistry:    registry{},
		Logger:             logger,
		DisableMlock:       true,
	}))
	listener := must(net.Listen("tcp", os.Args[1]))
	fmt.Println("listening", listener.Addr())
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{Address: listener.Addr().String()},
	})
	log.Fatal(http.Serve(listener, handler))
}
