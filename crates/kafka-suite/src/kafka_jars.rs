//! The jars of Kafka: a folder that the user names, and how to get one.

use seatrial_runner::ClientError;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// A folder with all jars of a release.
pub(crate) struct KafkaJars {
    pub(crate) class_path: OsString,
    /// Such as `3.9.0`.
    pub(crate) version: String,
}

/// The environment variable that names the folder, unless an option does.
pub(crate) const VARIABLE: &str = "KAFKA_LIB";

/// The commands that fetch the jars into the folder `kafka-lib`.
const FETCH: &str = "\
apt-get install --no-install-recommends default-jre-headless maven
cat > pom.xml <<END
<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>3.9.0</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
END
mvn -B dependency:copy-dependencies -DoutputDirectory=kafka-lib";

impl KafkaJars {
    /// Those of this folder, else of the one that the environment names.
    pub(crate) fn find(option: Option<&Path>) -> Result<KafkaJars, ClientError> {
        if let Some(folder) = option {
            return KafkaJars::in_folder(folder, "--jars");
        }
        match std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
            Some(folder) => KafkaJars::in_folder(Path::new(&folder), VARIABLE),
            None => Err(format!(
                "Kafka is not installed: name a folder with its jars, `libs` of a release, by --jars or by the environment \
                 variable {VARIABLE}; these commands make one, kafka-lib:\n{FETCH}"
            )
            .into()),
        }
    }

    fn in_folder(folder: &Path, named_by: &str) -> Result<KafkaJars, ClientError> {
        let version = version(folder).map_err(|error| {
            format!(
                "{named_by} {}: {error}; these commands make such a folder, kafka-lib:\n{FETCH}",
                folder.display()
            )
        })?;
        Ok(KafkaJars {
            class_path: std::path::absolute(folder)?.join("*").into_os_string(),
            version,
        })
    }
}

/// The version in the name of the server's jar, such as `kafka_2.13-3.9.0.jar`: Scala's version, then Kafka's.
fn version(folder: &Path) -> Result<String, ClientError> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let version = name
            .strip_prefix("kafka_")
            .and_then(|rest| rest.strip_suffix(".jar")?.split_once('-'));
        if let Some((_, version)) = version
            && version.starts_with(|c: char| c.is_ascii_digit())
            // Not the jars of its sources, its documentation or its tests.
            && !version.contains('-')
        {
            return Ok(version.to_owned());
        }
    }
    Err("there is no kafka_SCALA-VERSION.jar in it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_name_of_a_jar() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = KafkaJars::find(Some(folder.path()))
            .err()
            .expect("an error");
        let error = error.to_string();
        assert!(error.starts_with("--jars "), "{error}");
        assert!(error.contains("no kafka_SCALA-VERSION.jar"), "{error}");
        assert!(
            error.contains("mvn -B dependency:copy-dependencies"),
            "{error}"
        );
        for name in [
            "kafka-clients-3.9.0.jar",
            "kafka_2.13-3.9.0-sources.jar",
            "kafka_2.13-3.9.0.jar",
        ] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let jars = KafkaJars::find(Some(folder.path())).expect("jars");
        assert_eq!(jars.version, "3.9.0");
        assert!(jars.class_path.to_string_lossy().ends_with("/*"));
        let missing = KafkaJars::find(Some(Path::new("/nowhere/lib")));
        let missing = missing.err().expect("an error").to_string();
        assert!(missing.contains("/nowhere/lib: No such file"), "{missing}");
    }

    #[test]
    fn the_guide_has_the_same_commands() {
        let guide = include_str!("../../../docs/guide/systems.md");
        assert!(guide.contains(&format!("\n{FETCH}\n")));
    }
}
