//! moto in the place of AWS, with its checks of signatures and permissions: it accepts what accounts and
//! `secrets.aws` sign with the right key, and refuses what they sign with a wrong one.

use std::process::Command;

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::peers::curl;
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, ok};

use super::peers::{Moto, PYTHON};

/// Makes a user with a key, a role, a bucket and a secret. From then on moto checks every request.
const SET_UP: &str = r"
import json, sys, urllib.request, boto3

url = sys.argv[1]

def client(service):
    return boto3.client(service, 'us-east-1', endpoint_url=url, aws_access_key_id='id', aws_secret_access_key='key')

def policy(action, **more):
    statement = {'Effect': 'Allow', 'Action': action, **more}
    return json.dumps({'Version': '2012-10-17', 'Statement': [statement]})

iam = client('iam')
iam.create_user(UserName='egret')
iam.put_user_policy(UserName='egret', PolicyName='all', PolicyDocument=policy('*', Resource='*'))
key = iam.create_access_key(UserName='egret')['AccessKey']
trust = policy('sts:AssumeRole', Principal={'AWS': '*'})
role = iam.create_role(RoleName='reader', AssumeRolePolicyDocument=trust)['Role']
iam.put_role_policy(RoleName='reader', PolicyName='s3', PolicyDocument=policy('s3:*', Resource='*'))
client('s3').create_bucket(Bucket='a-bucket')
client('secretsmanager').create_secret(Name='prod/stripe', SecretString=json.dumps({'key': 'the-key-in-moto'}))
plain = {'Content-Type': 'text/plain'}
urllib.request.urlopen(urllib.request.Request(url + '/moto-api/reset-auth', b'0', plain))
print(key['AccessKeyId'], key['SecretAccessKey'], role['Arn'])
";

/// AWS with a user, whose key is in the environment of each Egret.
struct Aws {
    moto: Moto,
    id: String,
    secret: String,
    role: String,
}

impl Aws {
    fn start() -> Self {
        let moto = Moto::start();
        let mut command = Command::new(PYTHON);
        command.args(["-c", SET_UP, &moto.url()]).env("AWS_CONFIG_FILE", "/dev/null").env("no_proxy", "*");
        let made = run_checked(&mut command);
        let [id, secret, role] = made.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{made}") };
        Self { id: id.to_owned(), secret: secret.to_owned(), role: role.to_owned(), moto }
    }

    fn keep(&self, command: &mut Command) {
        command.env("OWN_ID", &self.id).env("OWN_KEY", &self.secret).env("NO_COLOR", "1");
        command.env("WRONG_KEY", self.secret.chars().rev().collect::<String>());
    }

    /// Starts Egret before it. A request names its account by `x-account`.
    fn before(&self) -> Egret {
        let account = |name: &str, service: &str, key: &str, more: &str| {
            format!(
                "  {name}: {{ provider: origin, sigv4: {{ access_key_id: '${{env:OWN_ID}}', secret_access_key: '${{env:{key}}}', \
                 region: us-east-1, service: {service}{more} }} }}\n"
            )
        };
        let names = ["s3", "s3-body", "s3-role", "s3-wrong", "sts", "secretsmanager", "secretsmanager-wrong"];
        let role = format!(", identity: {{ role: '{}', sts_url: '{}' }}", self.role, self.moto.url());
        let accounts: String = names
            .map(|name| {
                let service = name.split('-').next().unwrap();
                let key = if name.ends_with("-wrong") { "WRONG_KEY" } else { "OWN_KEY" };
                let more = match name {
                    "s3-body" => ", content_sha256: true",
                    "s3-role" => &role,
                    _ => "",
                };
                account(name, service, key, more)
            })
            .concat();
        let flow = |name| {
            format!(
                "  - {{ name: {name}, match: {{ header: {{ x-account: {name} }} }}, remedies: [{{ authenticate: {{ account: {name} }} }}] }}\n"
            )
        };
        let flows = names.map(flow).concat();
        let config = Config::with_origin(self.moto.url()).gateway("private_fields: [x-account]");
        let config = config.flows(format!("accounts:\n{accounts}flows:\n{flows}"));
        Egret::start_with(&config, |command| self.keep(command))
    }
}

/// Calls AWS as one of the accounts. Returns the status and the body.
fn call(egret: &Egret, account: &str, path: &str, arguments: &[&str]) -> (String, String) {
    let url = format!("{}/origin{path}", egret.url());
    let account = format!("x-account: {account}");
    let mut command = curl();
    command.args(["--path-as-is", "--write-out", "\n%{http_code}", "--header", &account, &url]);
    let shown = run_checked(command.args(arguments));
    let (body, status) = shown.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn s3_takes_what_the_key_and_a_role_sign_and_nothing_else() {
    let (aws, directory) = (Aws::start(), Directory::default());
    let egret = aws.before();
    let file = directory.write("object", "what it holds").display().to_string();
    // In the encoding of signatures: moto does not bring paths into it.
    for (account, path) in [
        ("s3", "/a-bucket/plain.txt"),
        ("s3", "/a-bucket/a%20dir/%C3%A4%2Bb.txt"),
        ("s3-body", "/a-bucket/odd/%28x%29%21%27%2A~%2B%26%3D%40%3A%2C%3B%24%25.txt"),
        ("s3-role", "/a-bucket/by-a-role.txt"),
    ] {
        let (status, body) = call(&egret, account, path, &["--upload-file", &file]);
        assert_eq!(status, "200", "{account} {path}: {body}");
        let read = call(&egret, account, path, &[]);
        assert_eq!(read, ("200".to_owned(), "what it holds".to_owned()), "{account} {path}");
    }
    let (status, listed) = call(&egret, "s3", "/a-bucket?list-type=2&prefix=a%20dir%2F&delimiter=%2F", &[]);
    assert!(status == "200" && listed.contains("<Key>a dir/ä+b.txt</Key>"), "{status} {listed}");
    for arguments in [&[][..], &["--upload-file", &file]] {
        let (status, refusal) = call(&egret, "s3-wrong", "/a-bucket/plain.txt", arguments);
        assert!(status == "403" && refusal.contains("SignatureDoesNotMatch"), "{status} {refusal}");
    }
}

#[test]
fn sts_and_secrets_manager_take_what_the_key_signs() {
    let aws = Aws::start();
    let egret = aws.before();
    let (status, who) = call(&egret, "sts", "/", &["--data", "Action=GetCallerIdentity&Version=2011-06-15"]);
    assert!(status == "200" && who.contains(":user/egret</Arn>"), "{status} {who}");
    let secret = |account: &str| {
        let target = "x-amz-target: secretsmanager.GetSecretValue";
        let media_type = "content-type: application/x-amz-json-1.1";
        let body = r#"{"SecretId":"prod/stripe"}"#;
        call(&egret, account, "/", &["--header", target, "--header", media_type, "--data", body])
    };
    let (status, body) = secret("secretsmanager");
    assert!(status == "200" && body.contains("the-key-in-moto"), "{status} {body}");
    let (status, body) = secret("secretsmanager-wrong");
    assert!(status == "403" && body.contains("SignatureDoesNotMatch"), "{status} {body}");
}

#[test]
fn a_config_reads_a_secret_of_moto_with_the_right_key_alone() {
    let (aws, origin) =
        (Aws::start(), Provider::with_responses(|request| ok(&request.values("authorization").concat())));
    let config = |key: &str| {
        Config::with_origin(origin.url()).flows(format!(
            "secrets: {{ aws: {{ region: us-east-1, access_key_id: '${{env:OWN_ID}}', secret_access_key: '${{env:{key}}}', url: '{}' }} }}\n\
             accounts:\n  main: {{ provider: origin, bearer: {{ token: '${{aws:prod/stripe#key}}' }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
            aws.moto.url()
        ))
    };
    let gateway = Egret::start_with(&config("OWN_KEY"), |command| aws.keep(command));
    assert_eq!(gateway.get("/a").text(), "Bearer the-key-in-moto");
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config("WRONG_KEY").yaml());
    let mut check = egret(["check", &file.display().to_string()]);
    aws.keep(&mut check);
    let output = run(&mut check);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("AWS Secrets Manager"), "{said}");
}
